// What the server keeps of graphs on disk.
#include "server/graph_cache.h"

#include <gtest/gtest.h>
#include <stdlib.h>
#include <sys/stat.h>

#include <fstream>

namespace rgpu::server {
namespace {

namespace fs = std::filesystem;

class GraphCaches : public ::testing::Test {
 protected:
  GraphCaches() {
    std::string name = ::testing::TempDir() + "rgpu-cache-XXXXXX";
    EXPECT_NE(mkdtemp(name.data()), nullptr);
    folder = name;
  }
  ~GraphCaches() override { fs::remove_all(folder); }
  fs::path folder;
};

std::vector<std::byte> bytes_of(const std::string& text) {
  const auto* first = reinterpret_cast<const std::byte*>(text.data());
  return {first, first + text.size()};
}

TEST(Sha256, KnownVectors) {
  EXPECT_EQ(sha256_hex({}), "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
  EXPECT_EQ(sha256_hex(bytes_of("abc")),
            "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
  EXPECT_TRUE(is_sha256_hex(std::string(64, 'a')));
  EXPECT_FALSE(is_sha256_hex(std::string(64, 'A')));
  EXPECT_FALSE(is_sha256_hex("../../../etc/passwd"));
}

TEST_F(GraphCaches, KeepsAndFinds) {
  const GraphCache cache(folder / "graphs", 1 << 20);
  const auto bytes = bytes_of("a graph");
  const std::string hash = sha256_hex(bytes);
  EXPECT_FALSE(cache.find(hash).has_value());
  cache.keep(hash, bytes);
  EXPECT_EQ(GraphCache(folder / "graphs", 1 << 20).find(hash), bytes);
  EXPECT_FALSE(cache.find("../" + hash).has_value());
}

TEST_F(GraphCaches, OtherContentsAreRemoved) {
  const GraphCache cache(folder / "graphs", 1 << 20);
  const std::string hash = sha256_hex(bytes_of("a graph"));
  std::ofstream(cache.path_of(hash)) << "another";
  EXPECT_FALSE(cache.find(hash).has_value());
  EXPECT_FALSE(fs::exists(cache.path_of(hash)));
}

TEST_F(GraphCaches, WhatWasUsedLongestAgoGoes) {
  const GraphCache cache(folder / "graphs", 25);
  std::vector<std::string> hashes;
  for (const std::string text : {"0123456789", "1234567890", "2345678901"}) {
    hashes.push_back(sha256_hex(bytes_of(text)));
    cache.keep(hashes.back(), bytes_of(text));
    const auto age = std::chrono::hours(10 - hashes.size());
    if (hashes.size() < 3) {
      fs::last_write_time(cache.path_of(hashes.back()), fs::file_time_type::clock::now() - age);
    }
  }
  EXPECT_FALSE(cache.find(hashes[0]).has_value());
  EXPECT_TRUE(cache.find(hashes[1]).has_value());
  EXPECT_TRUE(cache.find(hashes[2]).has_value());
}

TEST_F(GraphCaches, AFolderThatOthersMayReadIsNotUsed) {
  fs::create_directory(folder / "graphs");
  ASSERT_EQ(chmod((folder / "graphs").c_str(), 0755), 0);
  const GraphCache cache(folder / "graphs", 1 << 20);
  EXPECT_FALSE(cache.enabled());
  EXPECT_NE(cache.problem().find("must belong to the server's user alone"), std::string::npos);
}

TEST_F(GraphCaches, AFileInTheWayIsNamed) {
  std::ofstream(folder / "graphs") << "text";
  EXPECT_NE(GraphCache(folder / "graphs", 1).problem().find("is no folder"), std::string::npos);
}

TEST_F(GraphCaches, WithoutAFolderNothingIsKept) {
  const GraphCache cache("", 1 << 20);
  cache.keep(sha256_hex({}), {});
  EXPECT_FALSE(cache.find(sha256_hex({})).has_value());
}

}  // namespace
}  // namespace rgpu::server
