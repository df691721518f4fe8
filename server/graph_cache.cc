#include "server/graph_cache.h"

#include <fcntl.h>
#include <openssl/sha.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <fstream>
#include <system_error>

#include "wire/limits.h"

namespace rgpu::server {
namespace {

namespace fs = std::filesystem;

constexpr const char* kSuffix = ".graph";

}  // namespace

std::string sha256_hex(std::span<const std::byte> bytes) {
  std::array<unsigned char, SHA256_DIGEST_LENGTH> digest{};
  SHA256(reinterpret_cast<const unsigned char*>(bytes.data()), bytes.size(), digest.data());
  constexpr const char* kDigits = "0123456789abcdef";
  std::string text;
  for (const unsigned char byte : digest) {
    text += kDigits[byte >> 4];
    text += kDigits[byte & 15];
  }
  return text;
}

bool is_sha256_hex(const std::string& text) noexcept {
  return text.size() == 64 && std::all_of(text.begin(), text.end(), [](char c) {
           return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'f');
         });
}

std::string prepare_private_folder(const fs::path& folder) {
  std::error_code error;
  fs::create_directories(folder.parent_path(), error);
  if (mkdir(folder.c_str(), 0700) != 0 && errno != EEXIST) {
    return folder.string() + ": " + std::strerror(errno);
  }
  struct stat info{};
  if (lstat(folder.c_str(), &info) != 0 || !S_ISDIR(info.st_mode)) {
    return folder.string() + " is no folder";
  }
  if (info.st_uid != geteuid() || (info.st_mode & 077) != 0) {
    return folder.string() + " must belong to the server's user alone (chmod 700)";
  }
  return {};
}

void trim_folder(const fs::path& folder, uint64_t size_bytes_max, const fs::path& kept) {
  struct File {
    fs::file_time_type used;
    uint64_t size_bytes;
    fs::path path;
  };
  std::error_code error;
  std::vector<File> files;
  uint64_t total = 0;
  for (const fs::directory_entry& entry : fs::directory_iterator(folder, error)) {
    if (!entry.is_regular_file(error)) continue;
    const uint64_t size_bytes = entry.file_size(error);
    if (error) continue;  // Another server removed it.
    total += size_bytes;
    files.push_back({entry.last_write_time(error), size_bytes, entry.path()});
  }
  std::sort(files.begin(), files.end(),
            [](const File& a, const File& b) { return a.used < b.used; });
  for (const File& file : files) {
    if (total <= size_bytes_max) return;
    if (file.path == kept) continue;
    if (fs::remove(file.path, error)) total -= file.size_bytes;
  }
}

bool write_whole_file(const fs::path& path, std::span<const std::byte> bytes) {
  std::string unfinished = path.string() + ".XXXXXX";
  const int file = mkstemp(unfinished.data());
  if (file < 0) return false;
  std::error_code error;
  const ssize_t written = write(file, bytes.data(), bytes.size());
  close(file);
  const bool is_whole = written == static_cast<ssize_t>(bytes.size());
  if (is_whole) fs::rename(unfinished, path, error);
  if (is_whole && !error) return true;
  fs::remove(unfinished, error);
  return false;
}

GraphCache::GraphCache(fs::path folder, uint64_t size_bytes_max)
    : folder_(std::move(folder)), size_bytes_max_(size_bytes_max) {
  if (folder_.empty()) return;
  problem_ = prepare_private_folder(folder_);
  if (!problem_.empty()) folder_.clear();
}

fs::path GraphCache::path_of(const std::string& hash) const { return folder_ / (hash + kSuffix); }

std::optional<std::vector<std::byte>> GraphCache::find(const std::string& hash) const {
  if (!enabled() || !is_sha256_hex(hash)) return std::nullopt;
  const fs::path path = path_of(hash);
  std::error_code error;
  const uint64_t size_bytes = fs::file_size(path, error);
  if (error || size_bytes > limits::kGraphSizeBytesMax) return std::nullopt;
  std::vector<std::byte> bytes(size_bytes);
  std::ifstream file(path, std::ios::binary);
  file.read(reinterpret_cast<char*>(bytes.data()), static_cast<std::streamsize>(size_bytes));
  if (!file || sha256_hex(bytes) != hash) {
    fs::remove(path, error);
    return std::nullopt;
  }
  fs::last_write_time(path, fs::file_time_type::clock::now(), error);  // Its last use.
  return bytes;
}

void GraphCache::keep(const std::string& hash, std::span<const std::byte> bytes) const {
  if (!enabled() || !is_sha256_hex(hash)) return;
  const fs::path path = path_of(hash);
  std::error_code error;
  if (!fs::exists(path, error) && write_whole_file(path, bytes))
    trim_folder(folder_, size_bytes_max_, path);
}

}  // namespace rgpu::server
