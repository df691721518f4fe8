// GraphCache: what the server keeps of its sessions' graphs on disk, by the SHA-256 of their bytes,
// so that the next session that has the same graph need not send it.
//
// The folder belongs to the server's user alone; sessions share it. Files appear by renaming, and
// the ones used longest ago go when there are too many bytes.
//
// Threading: any thread, and any process.
// Errors:    a cache that cannot be used is one that holds nothing: the reason is in problem().
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <span>
#include <string>
#include <vector>

namespace rgpu::server {

// 64 lower-case hex digits.
[[nodiscard]] std::string sha256_hex(std::span<const std::byte> bytes);
[[nodiscard]] bool is_sha256_hex(const std::string& text) noexcept;

// Makes the folder for this user alone; the reason why it cannot be used, or "".
[[nodiscard]] std::string prepare_private_folder(const std::filesystem::path& folder);
// Removes the files used longest ago until all are at most so many bytes. `kept` stays.
void trim_folder(const std::filesystem::path& folder, uint64_t size_bytes_max,
                 const std::filesystem::path& kept);

// Appears whole or not at all; false if not.
[[nodiscard]] bool write_whole_file(const std::filesystem::path& path,
                                    std::span<const std::byte> bytes);

class GraphCache {
 public:
  // `folder`: "" for none.
  GraphCache(std::filesystem::path folder, uint64_t size_bytes_max);

  [[nodiscard]] bool enabled() const noexcept { return !folder_.empty(); }
  [[nodiscard]] const std::string& problem() const noexcept { return problem_; }
  // Verified: a file with other bytes than its name says is removed.
  [[nodiscard]] std::optional<std::vector<std::byte>> find(const std::string& hash) const;
  void keep(const std::string& hash, std::span<const std::byte> bytes) const;
  [[nodiscard]] std::filesystem::path path_of(const std::string& hash) const;

 private:
  std::filesystem::path folder_;
  const uint64_t size_bytes_max_;
  std::string problem_;
};

}  // namespace rgpu::server
