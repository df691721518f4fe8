// Linking of PTX: texts written here, and two pieces that nvcc made (tests/cuda/fixtures).

#include "wire/cuda/ptx_linker.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>
#include <sstream>
#include <string>
#include <vector>

#include "wire/cuda/kernel_parameters.h"

namespace rgpu::cuda {
namespace {

constexpr const char* kHeader = ".version 7.8\n.target sm_75\n.address_size 64\n";

struct Text {
  std::string name;
  std::string body;
};

Result<std::string> link(const std::vector<Text>& texts, const std::string& header = kHeader) {
  std::vector<std::string> whole;
  whole.reserve(texts.size());
  for (const Text& text : texts) whole.push_back(header + text.body);
  std::vector<PtxPiece> pieces;
  for (size_t i = 0; i < texts.size(); ++i) pieces.push_back({texts[i].name, whole[i]});
  return link_ptx(pieces);
}

std::string fixture(const std::string& name) {
  std::ifstream file(std::string(RGPU_CUDA_FIXTURES) + "/" + name);
  EXPECT_TRUE(file) << name;
  std::stringstream text;
  text << file.rdbuf();
  return text.str();
}

size_t count(const std::string& text, const std::string& what) {
  size_t found = 0;
  for (size_t at = text.find(what); at != std::string::npos; at = text.find(what, at + 1)) ++found;
  return found;
}

TEST(PtxLinker, OnePieceIsUnchanged) {
  const Result<std::string> linked = link({{"a", ".visible .entry k() { ret; }\n"}});
  ASSERT_TRUE(linked) << linked.error().message();
  EXPECT_EQ(*linked, std::string(kHeader) + ".visible .entry k() { ret; }\n");
}

TEST(PtxLinker, PiecesOfTheCompilerBecomeOne) {
  const std::string caller = fixture("linked_caller.ptx");
  const std::string callee = fixture("linked_callee.ptx");
  for (const bool caller_first : {true, false}) {
    std::vector<PtxPiece> pieces{{"caller", caller}, {"callee", callee}};
    if (!caller_first) std::swap(pieces[0], pieces[1]);
    const Result<std::string> linked = link_ptx(pieces);
    ASSERT_TRUE(linked) << linked.error().message();
    const Result<ImageFacts> facts = facts_of_ptx(*linked);
    ASSERT_TRUE(facts) << facts.error().message();
    EXPECT_EQ(facts->kernels.size(), 2U);
    EXPECT_EQ(facts->variables.size(), 3U);  // offsets, and each piece's $str.
    EXPECT_EQ(count(*linked, ".extern .global"), 0U);
    EXPECT_EQ(count(*linked, ".extern .func"), 1U);  // vprintf, the driver's own.
    EXPECT_LT(linked->find(".visible .func"), linked->find('{'));
    EXPECT_LT(linked->find(".global .align 4 .b8 offsets"), linked->find(".entry"));
  }
}

TEST(PtxLinker, PrivateNamesStayApart) {
  const Result<std::string> linked =
      link({{"a", ".global .b32 x = 1;\n.visible .entry ka() { ld.global.b32 %r1, [x+4]; ret; }\n"},
            {"b", ".global .b32 x = 2;\n.visible .entry kb() { ld.global.b32 %r1, [x]; ret; }\n"}});
  ASSERT_TRUE(linked) << linked.error().message();
  EXPECT_EQ(count(*linked, "x = 1;"), 1U);
  EXPECT_EQ(count(*linked, "x$1 = 2;"), 1U);
  EXPECT_EQ(count(*linked, "[x+4]"), 1U);
  EXPECT_EQ(count(*linked, "[x$1]"), 1U);
}

TEST(PtxLinker, ANewNameIsNobodysElse) {
  const Result<std::string> linked = link({{"a", ".global .b32 x;\n.global .b32 x$1;\n"},
                                           {"b", ".global .b32 x;\n"},
                                           {"c", ".visible .global .b32 x$2;\n"}});
  ASSERT_TRUE(linked) << linked.error().message();
  const Result<ImageFacts> facts = facts_of_ptx(*linked);
  ASSERT_TRUE(facts) << facts.error().message();
  std::vector<std::string> names;
  for (const Variable& variable : facts->variables) names.push_back(variable.name);
  std::ranges::sort(names);
  EXPECT_EQ(names.size(), 4U);
  EXPECT_EQ(std::ranges::adjacent_find(names), names.end());
}

TEST(PtxLinker, APrivateNameGivesWayToAPublicOne) {
  const Result<std::string> linked =
      link({{"a", ".func f() { ret; }\n.visible .entry k() { call f, (); ret; }\n"},
            {"b", ".visible .func f() { exit; }\n"}});
  ASSERT_TRUE(linked) << linked.error().message();
  EXPECT_EQ(count(*linked, ".func f$0() { ret; }"), 1U);
  EXPECT_EQ(count(*linked, "call f$0, ()"), 1U);
  EXPECT_EQ(count(*linked, ".visible .func f() { exit; }"), 1U);
}

TEST(PtxLinker, OneOfSeveralWeakDefinitionsIsKept) {
  const Result<std::string> linked = link({{"a", ".weak .func f() { ret; }\n"},
                                           {"b", ".weak .func f() { exit; }\n"},
                                           {"c", ".common .global .b32 c;\n"},
                                           {"d", ".visible .global .b32 c = 7;\n"}});
  ASSERT_TRUE(linked) << linked.error().message();
  EXPECT_EQ(count(*linked, "{ ret; }"), 1U);
  EXPECT_EQ(count(*linked, "{ exit; }"), 0U);
  EXPECT_EQ(count(*linked, ".common"), 0U);
  EXPECT_EQ(count(*linked, "c = 7;"), 1U);
}

TEST(PtxLinker, AStrongDefinitionBeatsAWeakOne) {
  for (const bool weak_first : {true, false}) {
    std::vector<Text> texts{{"a", ".weak .func f() { ret; }\n"},
                            {"b", ".visible .func f() { exit; }\n"}};
    if (!weak_first) std::swap(texts[0], texts[1]);
    const Result<std::string> linked = link(texts);
    ASSERT_TRUE(linked) << linked.error().message();
    EXPECT_EQ(count(*linked, "{ ret; }"), 0U);
    EXPECT_EQ(count(*linked, "{ exit; }"), 1U);
  }
}

TEST(PtxLinker, VariablesStandBehindWhatTheyName) {
  const Result<std::string> linked =
      link({{"a",
             ".extern .global .b64 far;\n.visible .global .b64 near = generic(far);\n"
             ".extern .func f();\n.global .b64 table[2] = {near, f};\n"},
            {"b",
             ".global .b64 hidden = 5;\n.visible .global .b64 far = hidden;\n"
             ".visible .func f() { ret; }\n"}});
  ASSERT_TRUE(linked) << linked.error().message();
  const std::vector<std::string> order{".func f()", "hidden = 5", "far = hidden",
                                       "near = generic(far)", "table[2]"};
  for (size_t i = 1; i < order.size(); ++i) {
    EXPECT_LT(linked->find(order[i - 1]), linked->find(order[i])) << *linked;
  }
}

TEST(PtxLinker, DynamicSharedMemoryIsDeclaredOnce) {
  const std::string body = ".extern .shared .align 16 .b8 dynamic[];\n";
  const Result<std::string> linked = link({{"a", body}, {"b", body}});
  ASSERT_TRUE(linked) << linked.error().message();
  EXPECT_EQ(count(*linked, "dynamic[]"), 1U);
}

TEST(PtxLinker, LinesForDebuggersAreDropped) {
  const Result<std::string> linked =
      link({{"a",
             ".file 1 \"a.cu\"\n.visible .entry k()\n{\n.loc 1 5 3\nret;\n.loc 1 6 1, "
             "function_name x, inlined_at 1 2 3\n}\n.section .debug_str { .b8 1,2 }\n"},
            {"b", ".visible .entry m() { ret; }\n"}},
           ".version 8.0\n.target sm_80, debug\n.address_size 64\n");
  ASSERT_TRUE(linked) << linked.error().message();
  for (const char* gone : {".loc", ".file", ".section", "debug", "inlined_at"}) {
    EXPECT_EQ(count(*linked, gone), 0U) << gone;
  }
  EXPECT_EQ(count(*linked, "ret;"), 2U);
}

TEST(PtxLinker, TheNewestVersionAndTargetAreTheWholes) {
  const std::string old = ".version 6.4\n.target sm_75\n.address_size 64\n";
  const std::string newer = ".version 8.5\n.target sm_90a\n.address_size 64\n";
  const std::vector<PtxPiece> pieces{{"a", newer}, {"b", old}};
  const Result<std::string> linked = link_ptx(pieces);
  ASSERT_TRUE(linked) << linked.error().message();
  EXPECT_TRUE(linked->starts_with(".version 8.5\n.target sm_90a\n")) << *linked;
}

TEST(PtxLinker, WhatIsMissingIsNamed) {
  const Result<std::string> linked =
      link({{"first", ".extern .func gone();\n"}, {"second", ".global .b32 x;\n"}});
  ASSERT_FALSE(linked);
  EXPECT_EQ(linked.error().message(), "undefined symbol 'gone' in first");
  EXPECT_FALSE(link({{"alone", ".extern .func gone();\n"}}));
}

TEST(PtxLinker, TwoDefinitionsNameBothPieces) {
  const std::string body = ".visible .entry k() { ret; }\n";
  const Result<std::string> linked = link({{"first", body}, {"second", body}});
  ASSERT_FALSE(linked);
  EXPECT_EQ(linked.error().message(), "'k' is defined in first and in second");
  EXPECT_FALSE(link({{"a", ".entry k() { ret; }\n"}, {"b", ".entry k() { ret; }\n"}}));
}

TEST(PtxLinker, BrokenPiecesNameThemselves) {
  for (const char* broken : {".visible .entry k() {", ".global .b32 x", ".func", ".global /* x",
                             ".alias a, b;", ".func f(", ".visible .entry k() .maxntid 1"}) {
    const Result<std::string> linked = link({{"good", ""}, {"bad.ptx", broken}});
    ASSERT_FALSE(linked) << broken;
    EXPECT_TRUE(linked.error().message().starts_with("bad.ptx: PTX line ")) << broken;
  }
  EXPECT_FALSE(link_ptx({}));
}

TEST(PtxLinker, DeepInitialisersAreAnError) {
  std::string chain;
  for (int i = 0; i < 1500; ++i) {
    chain += ".visible .global .b64 v" + std::to_string(i) + " = v" + std::to_string(i + 1) + ";\n";
  }
  chain += ".visible .global .b64 v1500;\n";
  const Result<std::string> linked = link({{"a", chain}, {"b", ""}});
  ASSERT_FALSE(linked);
  EXPECT_NE(linked.error().message().find("1000 variables"), std::string::npos);
}

}  // namespace
}  // namespace rgpu::cuda
