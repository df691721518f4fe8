// What a client reads from PTX: nvcc's own text, and every way that the language has to write it.
#include <gtest/gtest.h>

#include "tests/wire/cuda/fixture.h"
#include "wire/cuda/kernel_parameters.h"

namespace rgpu::cuda {
namespace {

using Parameters = std::vector<KernelParameter>;
using Block = std::array<uint32_t, 3>;

std::string with_header(const std::string& statements) {
  return ".version 7.8\n.target sm_80\n.address_size 64\n" + statements;
}

ImageFacts facts_of_text(const std::string& text) {
  Result<ImageFacts> facts = facts_of_ptx(text);
  EXPECT_TRUE(facts) << facts.error().message();
  return facts ? *facts : ImageFacts();
}

std::string error_of(const std::string& statements) {
  const auto facts = facts_of_ptx(with_header(statements));
  return facts ? "" : facts.error().message();
}

KernelLayout kernel_of(const std::string& statements) {
  const ImageFacts facts = facts_of_text(with_header(statements));
  EXPECT_EQ(facts.kernels.size(), 1U) << statements;
  return facts.kernels.empty() ? KernelLayout() : facts.kernels.front();
}

Parameters parameters_of(const std::string& list) {
  return kernel_of(".visible .entry k(" + list + ")\n{ ret; }\n").parameters;
}

Variable variable_of(const std::string& statement) {
  const ImageFacts facts = facts_of_text(with_header(statement));
  EXPECT_EQ(facts.variables.size(), 1U) << statement;
  return facts.variables.empty() ? Variable() : facts.variables.front();
}

TEST(PtxFacts, ReadsWhatNvccWrote) {
  const ImageFacts facts = facts_of_text(text_fixture("layouts_75.ptx"));
  EXPECT_EQ(facts.ptx_version, 90U);
  EXPECT_EQ(facts.arch, Arch{75});
  ASSERT_EQ(facts.kernels.size(), 8U);

  const KernelLayout* kernel = find_kernel(facts, "saxpy");
  ASSERT_NE(kernel, nullptr);
  EXPECT_EQ(kernel->parameters, (Parameters{{0, 4}, {4, 4}, {8, 8}, {16, 8}}));
  EXPECT_EQ(kernel->parameters_size_bytes, 24U);
  EXPECT_EQ(kernel->block_max, (Block{256, 1, 1}));
  EXPECT_EQ(kernel->block_required, (Block{0, 0, 0}));

  kernel = find_kernel(facts, "_Z5mixed5Mixedc6float4sPb");
  ASSERT_NE(kernel, nullptr);
  EXPECT_EQ(kernel->parameters, (Parameters{{0, 16}, {16, 1}, {32, 16}, {48, 2}, {56, 8}}));
  EXPECT_EQ(kernel->static_shared_size_bytes, 0U);

  kernel = find_kernel(facts, "_Z5large5LargePiS_");
  ASSERT_NE(kernel, nullptr);
  EXPECT_EQ(kernel->parameters, (Parameters{{0, 4096}, {4096, 8}, {4104, 4096}}));
  EXPECT_EQ(kernel->parameters_size_bytes, 8200U);
  EXPECT_EQ(kernel->static_shared_size_bytes, 132U);

  kernel = find_kernel(facts, "_Z7alignedc7Aligned5EmptycPi");
  ASSERT_NE(kernel, nullptr);
  EXPECT_EQ(kernel->parameters, (Parameters{{0, 1}, {64, 64}, {128, 1}, {129, 1}, {136, 8}}));
  EXPECT_EQ(kernel->static_shared_size_bytes, 40U) << "of the function that it calls";

  kernel = find_kernel(facts, "_Z4nonev");
  ASSERT_NE(kernel, nullptr);
  EXPECT_TRUE(kernel->parameters.empty());
  EXPECT_EQ(kernel->parameters_size_bytes, 0U);

  kernel = find_kernel(facts, "_Z7dynamicPi");
  ASSERT_NE(kernel, nullptr);
  EXPECT_EQ(kernel->static_shared_size_bytes, 0U) << "what the launch adds is not static";
}

TEST(PtxFacts, ReadsNvccsVariables) {
  const ImageFacts facts = facts_of_text(text_fixture("layouts_75.ptx"));
  const auto check = [&](const std::string& name, VariableSpace space, uint64_t size,
                         uint32_t align) {
    const Variable* const variable = find_variable(facts, name);
    ASSERT_NE(variable, nullptr) << name;
    EXPECT_EQ(variable->space, space) << name;
    EXPECT_EQ(variable->size_bytes, size) << name;
    EXPECT_EQ(variable->align_bytes, align) << name;
    EXPECT_EQ(variable->is_managed, name == "managed") << name;
  };
  check("counter", VariableSpace::kGlobal, 4, 4);
  check("table", VariableSpace::kConstant, 68, 4);
  check("vectors", VariableSpace::kGlobal, 48, 16);
  check("managed", VariableSpace::kGlobal, 4, 4);
  check("hidden", VariableSpace::kGlobal, 10, 2);
  check("initialised", VariableSpace::kGlobal, 16, 8);
  check("bytes", VariableSpace::kConstant, 3, 1);
}

TEST(PtxFacts, ReadsTheRequiredBlock) {
  const ImageFacts facts = facts_of_text(text_fixture("layouts_90.ptx"));
  const KernelLayout* const kernel = find_kernel(facts, "_Z11fixed_blockPi");
  ASSERT_NE(kernel, nullptr);
  EXPECT_EQ(kernel->block_required, (Block{32, 4, 2}));
}

TEST(PtxFacts, ReadsTheHeader) {
  const auto header = header_of_ptx("// made by hand\n\n.version 8.6\n.target sm_100f, debug\n");
  ASSERT_TRUE(header) << header.error().message();
  EXPECT_EQ(header->version, 86U);
  EXPECT_EQ(header->arch, (Arch{100, ArchVariant::kFamily}));
  EXPECT_EQ(header_of_ptx(".version 7.8 .target sm_90a")->arch, (Arch{90, ArchVariant::kSpecific}));
  for (const std::string bad : {"", ".version", ".version 7", ".version 7.88 .target sm_80",
                                ".version 7.8 .target compute_80", ".version 7.8 .target sm_",
                                ".version 7.8 .target sm_90b", ".version 7.8 .target sm_99999",
                                ".version x.8 .target sm_80", ".target sm_80 .version 7.8"}) {
    EXPECT_FALSE(header_of_ptx(bad)) << bad;
  }
}

TEST(PtxParameters, OfEveryTypeHaveTheirSizes) {
  EXPECT_EQ(parameters_of(".param .b8 a, .param .s16 b, .param .f16 c, .param .f16x2 d"),
            (Parameters{{0, 1}, {2, 2}, {4, 2}, {8, 4}}));
  EXPECT_EQ(parameters_of(".param .u8 a, .param .b128 b, .param .bf16 c, .param .f64 d"),
            (Parameters{{0, 1}, {16, 16}, {32, 2}, {40, 8}}));
  EXPECT_EQ(parameters_of(".param .u8 a, .param .texref t, .param .surfref s"),
            (Parameters{{0, 1}, {8, 8}, {16, 8}}));
}

TEST(PtxParameters, KeepTheirAlignment) {
  EXPECT_EQ(parameters_of(".param .u8 a, .param .align 8 .b8 b[12], .param .u8 c"),
            (Parameters{{0, 1}, {8, 12}, {20, 1}}));
  EXPECT_EQ(parameters_of(".param .u8 a, .param .align 1 .b8 b[4096]"),
            (Parameters{{0, 1}, {1, 4096}}));
  EXPECT_EQ(parameters_of(".param .u8 a, .param .v4 .f32 b, .param .u32 c[2][3]"),
            (Parameters{{0, 1}, {16, 16}, {32, 24}}));
}

TEST(PtxParameters, PointersMayDescribeWhatTheyPointTo) {
  EXPECT_EQ(parameters_of(".param .u32 a, .param .u64 .ptr .global .align 16 b, "
                          ".param .u64 .ptr .align 1 c, .param .u64 .ptr d"),
            (Parameters{{0, 4}, {8, 8}, {16, 8}, {24, 8}}));
}

TEST(PtxParameters, CommentsAndNamesOfAllKinds) {
  EXPECT_EQ(parameters_of("\n// first, .param .u64 no\n.param .u32 %a, /* .param .u64 no, */\n"
                          ".param .u32 $b ,.param.u32 _c$%d"),
            (Parameters{{0, 4}, {4, 4}, {8, 4}}));
  EXPECT_EQ(kernel_of(".entry \"a quoted{ name\" (.param .u32 a) { ret; }").name, "a quoted{ name");
  EXPECT_EQ(kernel_of(".entry $L__x$1 { ret; }").name, "$L__x$1");
  const std::string name(kSymbolNameBytesMax, 'n');
  EXPECT_EQ(kernel_of(".entry " + name + "() { ret; }").name, name);
  EXPECT_EQ(error_of(".entry n" + name + "() { ret; }").substr(0, 37),
            "PTX line 4: a name of 65537 bytes, at");
}

TEST(PtxParameters, WhatIsWrongIsSaidWithItsLine) {
  EXPECT_EQ(error_of("\n.entry k(.param .u33 a) { ret; }"),
            "PTX line 5: no type of PTX, at '.u33'");
  EXPECT_EQ(error_of(".entry k(.param .u32 a .param .u32 b) { ret; }"),
            "PTX line 4: a parameter without ',' or ')', at '.param'");
  EXPECT_EQ(error_of(".entry k(.param .u32 a"),
            "PTX line 4: a parameter without ',' or ')', at 'the end'");
  EXPECT_EQ(error_of(".entry k(.param .b8 a[]) { ret; }"),
            "PTX line 4: a parameter without a size, at ')'");
  EXPECT_EQ(error_of(".entry k(.param .b8 a[99999]) { ret; }"),
            "PTX line 4: more than 32764 bytes of parameters, at ')'");
  EXPECT_EQ(error_of(".entry k(.param .align 3 .b8 a[3]) { ret; }"),
            "PTX line 4: an alignment that is no power of two up to 4096, at '.b8'");
  EXPECT_EQ(error_of(".entry k(.param .b8 a[x]) { ret; }"), "PTX line 4: no number, at 'x'");
  EXPECT_EQ(error_of(".entry k(.param .b8 a[1.5]) { ret; }"),
            "PTX line 4: no whole number, at '1.5'");
  EXPECT_EQ(error_of(".entry k() { ret; "), "PTX line 4: a body without an end, at '{'");
  EXPECT_EQ(error_of(".entry k() .maxntid 3"), "PTX line 4: a kernel without a body, at 'the end'");
  EXPECT_EQ(error_of(".entry (.param .u32 a) { ret; }"), "PTX line 4: no name, at '('");
  EXPECT_EQ(error_of("/* open"), "PTX line 4: a broken text, at 'a comment without an end'");
  EXPECT_EQ(error_of(".global .u32 v = \"open"),
            "PTX line 4: an initialiser without an end, at 'a string without an end'");
}

TEST(PtxKernels, KnowTheirBlocks) {
  const KernelLayout kernel = kernel_of(
      ".weak .entry k() .maxntid 128, 2 .minnctapersm 4 .maxnreg 32 .reqntid 0x40, 1, 2\n"
      ".pragma \"something; else {\";\n{ ret; }");
  EXPECT_EQ(kernel.block_max, (Block{128, 2, 1}));
  EXPECT_EQ(kernel.block_required, (Block{64, 1, 2}));
}

TEST(PtxKernels, WithoutABodyAreNone) {
  EXPECT_TRUE(facts_of_text(with_header(".extern .entry k(.param .u32 a);")).kernels.empty());
}

TEST(PtxKernels, BodiesAreSkippedWhateverTheyHold) {
  const ImageFacts facts = facts_of_text(with_header(
      ".entry a() { { // } \n /* } */ .pragma \"}\"; } bra $x; {} }\n"
      ".func (.param .b32 r) f (.param .b32 p, .param .align 8 .b8 q[16]) .noreturn { ret; }\n"
      ".func .attribute(.unified(1, 2)) g () ;\n"
      ".section .debug_info { .b8 1, 2 .entry no() { } }\n"
      ".file 1 \"a.cu\", 12, 34\n.pragma \"x\";\n.alias f, a;\n"
      ".visible .entry b(.param .u32 p) { ld.shared.u32 %r1, [p]; ret; }\n"));
  ASSERT_EQ(facts.kernels.size(), 2U);
  EXPECT_EQ(facts.kernels[0].name, "a");
  EXPECT_EQ(facts.kernels[1].name, "b");
  EXPECT_EQ(facts.kernels[1].parameters_size_bytes, 4U);
}

TEST(PtxShared, AddsUpWithAlignment) {
  EXPECT_EQ(kernel_of(".entry k() { .shared .align 1 .b8 a[3]; .shared .u32 b; { .shared .align "
                      "16 .b8 c[1]; } ld.shared.u32 %r, [a]; // .shared .b8 no[100];\n }")
                .static_shared_size_bytes,
            17U);
}

TEST(PtxShared, CountsTheModulesOwnWhereItIsNamed) {
  const ImageFacts facts = facts_of_text(with_header(
      ".shared .align 4 .b8 used[100];\n.shared .align 4 .b8 other[1000];\n"
      ".extern .shared .align 16 .b8 dynamic[];\n"
      ".func deep() { mov.u32 %r1, used; ret; }\n"
      ".func loop() { call deep; call loop; ret; }\n"
      ".entry direct() { mov.u32 %r1, used; mov.u32 %r2, used; mov.u32 %r3, dynamic; ret; }\n"
      ".entry indirect() { .shared .u32 own; call loop; ret; }\n"
      ".entry neither() { ret; }\n"));
  ASSERT_EQ(facts.kernels.size(), 3U);
  EXPECT_EQ(facts.kernels[0].static_shared_size_bytes, 100U);
  EXPECT_EQ(facts.kernels[1].static_shared_size_bytes, 104U);
  EXPECT_EQ(facts.kernels[2].static_shared_size_bytes, 0U);
}

TEST(PtxVariables, HaveTheSizesOfTheirArrays) {
  EXPECT_EQ(variable_of(".global .align 4 .b8 v[68];").size_bytes, 68U);
  EXPECT_EQ(variable_of(".visible .const .f64 v[2][3] = {{1, 2, 3}, {4, 5, 6}};").size_bytes, 48U);
  EXPECT_EQ(variable_of(".global .v4 .f32 v[0x10];").size_bytes, 256U);
  EXPECT_EQ(variable_of(".global .texref v;").size_bytes, 8U);
  EXPECT_EQ(variable_of(".global .u32 v = 5;").size_bytes, 4U);
  EXPECT_EQ(variable_of(".global .u64 v = generic(other) + 4;").size_bytes, 8U);
}

TEST(PtxVariables, MayTakeTheirSizeFromTheirValues) {
  EXPECT_EQ(variable_of(".const .u32 v[] = {1, 2, 3};").size_bytes, 12U);
  EXPECT_EQ(variable_of(".const .u8 v[] = {};").size_bytes, 0U);
  EXPECT_EQ(variable_of(".global .u16 v[][2] = {{1, 2}, {3, 4}, {5, 6}};").size_bytes, 12U);
  EXPECT_EQ(variable_of(".global .u64 v[] = {generic(a), f(b, c) + 1};").size_bytes, 16U);
}

TEST(PtxVariables, ExternOnesAreOfAnotherModule) {
  const ImageFacts facts =
      facts_of_text(with_header(".extern .global .u32 there;\n.global .u32 here, too;\n"
                                ".extern .const .b8 also[];\n.weak .global .u8 weak;\n"));
  ASSERT_EQ(facts.variables.size(), 3U);
  EXPECT_EQ(facts.variables[0].name, "here");
  EXPECT_EQ(facts.variables[1].name, "too");
  EXPECT_EQ(facts.variables[2].name, "weak");
}

TEST(PtxVariables, TooLargeOnesAreErrors) {
  EXPECT_EQ(error_of(".global .b64 v[4294967296][4294967296];"),
            "PTX line 4: a variable beyond 1 TiB, at ';'");
  EXPECT_EQ(error_of(".global .b8 v[99999999999999999999];"),
            "PTX line 4: no whole number, at '99999999999999999999'");
  EXPECT_EQ(error_of(".global .u32 v"), "PTX line 4: a variable without its ';', at 'the end'");
}

TEST(PtxFacts, NoPrefixOfATextIsReadBeyondItsEnd) {
  const std::string text = text_fixture("layouts_90.ptx");
  for (size_t size = 0; size < text.size(); ++size) {
    // On the heap and of this very size, so that AddressSanitizer sees a byte too many.
    const std::vector<char> prefix(text.begin(), text.begin() + static_cast<std::ptrdiff_t>(size));
    const auto facts = facts_of_ptx({prefix.data(), prefix.size()});
    EXPECT_TRUE(!facts || facts->kernels.size() <= 8);
  }
}

}  // namespace
}  // namespace rgpu::cuda
