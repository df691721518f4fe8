// Loads, stores and atomics in each space: widths, vectors, addresses, and what must fail.
#include <bit>
#include <cmath>
#include <numeric>

#include "tests/server/cuda/ptx_apply.h"

namespace rgpu::server::ptx {
namespace {

class PtxMemory : public PtxInstructionTest {
 protected:
  // A kernel over one array: %rd its address, %t the thread.
  template <typename T>
  Fault on_array(const std::string& body, const DeviceArray<T>& array, PtxTest::Shape shape,
                 const std::string& before = "") {
    const auto module = load(
        before +
        ".visible .entry k(.param .u64 p) {\n.reg .b64 %rd, %rd<9>, %w<9>;\n.reg .b32 %t, %x<9>;\n"
        ".reg .b16 %h<9>;\n.reg .f64 %f<4>;\n.reg .pred %p<4>;\n.reg .b128 %q<3>;\n"
        "ld.param.u64 %rd0, [p];\nmov.u32 %t, %tid.x;\nmul.wide.u32 %rd1, %t, " +
        std::to_string(sizeof(T)) + ";\nadd.u64 %rd, %rd0, %rd1;\n" + body + "\nret;\n}\n");
    if (module == nullptr) return {FaultCode::kInvalidPtx, "not loaded"};
    EXPECT_EQ(module->kernels()[0].error, "");
    return launch(module, "k", shape, array.address());
  }
  template <typename T>
  void expect_array(const std::string& body, const DeviceArray<T>& array, PtxTest::Shape shape,
                    const std::string& before = "") {
    const Fault fault = on_array("\n" + body, array, shape, before);
    EXPECT_EQ(fault.code, 0) << fault.message;
  }
  static constexpr PtxTest::Shape kWarp = {.block = {32, 1, 1}};
};

TEST_F(PtxMemory, WidthsAndSigns) {
  const std::vector<uint64_t> v = {0x8081828384858687, 0x0123456789abcdef};
  expect_each<uint64_t>(
      "add.u64 %w1, %r1, 0;\nld.global.s8 %w2, [%r4+1];\nmov.b64 %d, %w2;", v,
      [](uint64_t a) { return static_cast<uint64_t>(static_cast<int8_t>(a >> 8)); });
  expect_each<uint64_t>("ld.global.u16 %x1, [%r4+2];\ncvt.u64.u32 %d, %x1;", v,
                        [](uint64_t a) { return a >> 16 & 0xffff; });
  expect_each<uint64_t>("ld.global.s32 %d, [%r4+4];", v, [](uint64_t a) {
    return static_cast<uint64_t>(static_cast<int32_t>(a >> 32));
  });
  expect_each<uint64_t>("ld.global.s16 %x1, [%r4+6];\ncvt.u64.u32 %d, %x1;", v, [](uint64_t a) {
    return uint64_t{static_cast<uint32_t>(static_cast<int16_t>(a >> 48))};
  });
  expect_each<uint64_t>(
      "ld.global.v4.u16 {%h1, %h2, %h3, %h4}, [%r4];\nmov.b64 %d, {%h4, %h3, %h2, %h1};", v,
      [](uint64_t a) {
        return a << 48 | (a >> 16 & 0xffff) << 32 | (a >> 32 & 0xffff) << 16 | a >> 48;
      });
  expect_each<uint64_t>("ld.global.v2.u32 {_, %x2}, [%r4];\ncvt.u64.u32 %d, %x2;", v,
                        [](uint64_t a) { return a >> 32; });
  expect_each<uint64_t>(
      "st.global.u8 [%r4+3], %a;\nst.global.v2.b8 [%r4+6], {%a, 5};\nld.volatile.global.u64 %d, "
      "[%r4];",
      v, [](uint64_t a) {
        const uint64_t low = a & 0xff;
        return (a & 0x0000ffff00ffffff) | low << 24 | low << 48 | uint64_t{5} << 56;
      });
}

TEST_F(PtxMemory, Wide128) {
  const DeviceArray<uint64_t> array(memory_, {1, 2, 3, 4});
  expect_array(
      "ld.global.b128 %q1, [%rd0];\nmov.b128 {%rd2, %rd3}, %q1;\nmov.b128 %q2, {%rd3, "
      "%rd2};\nst.global.b128 [%rd0+16], %q2;",
      array, {});
  EXPECT_EQ(array[2], 2U);
  EXPECT_EQ(array[3], 1U);
}

TEST_F(PtxMemory, SpacesHaveGenericAddresses) {
  const DeviceArray<uint32_t> array(memory_, 32);
  // Through shared memory, local memory and the global array, by generic loads alone.
  expect_array(R"(
    .shared .align 8 .b8 s[128];
    .local .align 4 .b8 l[8];
    mov.u32 %x1, s;
    shl.b32 %x2, %t, 2;
    add.u32 %x1, %x1, %x2;
    st.shared.u32 [%x1], %t;
    cvt.u64.u32 %rd2, %x1;
    cvta.shared.u64 %rd2, %rd2;
    mov.u64 %rd3, l;
    cvta.local.u64 %rd4, %rd3;
    add.u32 %x3, %t, 1000;
    st.u32 [%rd4+4], %x3;
    ld.local.u32 %x4, [%rd3+4];
    ld.u32 %x5, [%rd2];
    add.u32 %x6, %x4, %x5;
    cvta.to.global.u64 %rd5, %rd;
    st.u32 [%rd5], %x6;
    isspacep.shared %p1, %rd2;
    isspacep.local %p2, %rd2;
    isspacep.local %p3, %rd4;
    @!%p1 trap;
    @%p2 trap;
    @!%p3 trap;
    isspacep.global %p1, %rd;
    @!%p1 trap;
    cvta.to.shared.u64 %rd6, %rd2;
    cvt.u32.u64 %x7, %rd6;
    setp.ne.u32 %p2, %x7, %x1;
    @%p2 trap;)",
               array, kWarp);
  for (uint32_t i = 0; i < 32; ++i) EXPECT_EQ(array[i], 2 * i + 1000);
}

TEST_F(PtxMemory, ConstantsAndInitializers) {
  const DeviceArray<uint64_t> array(memory_, 8);
  expect_array(R"(
    ld.const.u32 %x1, [table+8];
    cvt.u64.u32 %rd2, %x1;
    st.global.u64 [%rd0], %rd2;
    ld.global.u64 %rd3, [pointers];
    ld.const.f32 %x2, [%rd3];
    cvt.f64.f32 %f1, %x2;
    st.global.f64 [%rd0+8], %f1;
    ld.global.u64 %rd4, [pointers+8];
    ld.u8 %x3, [%rd4];
    cvt.u64.u32 %rd5, %x3;
    st.global.u64 [%rd0+16], %rd5;
    mov.u64 %rd6, table;
    isspacep.const %p1, %rd6;
    @!%p1 trap;
    ld.global.u64 %rd7, [bytes];
    sub.u64 %rd7, %rd7, %rd6;
    st.global.u64 [%rd0+24], %rd7;
    ld.global.f64 %f2, [real];
    st.global.f64 [%rd0+32], %f2;)",
               array, {}, R"(
    .const .align 4 .u32 table[4] = {1, 2, 0x2a, 0b101};
    .const .f32 one = 0f3F800000;
    .global .align 1 .b8 text[3] = {104, 105, 0};
    .global .align 8 .u64 pointers[2] = {one, generic(text)+1};
    .global .align 8 .b8 bytes[8] = {0xFF(table+4), 0xFF00(table+4), 0xFF0000(table+4), 0xFF000000(table+4),
      0xFF00000000(table+4), 0xFF0000000000(table+4), 0xFF000000000000(table+4), 0xFF00000000000000(table+4)};
    .global .f64 real = -2.5;
    )");
  EXPECT_EQ(array[0], 42U);
  EXPECT_EQ(std::bit_cast<double>(array[1]), 1.0);
  EXPECT_EQ(array[2], 105U);
  EXPECT_EQ(array[3], 4U);
  EXPECT_EQ(std::bit_cast<double>(array[4]), -2.5);
}

TEST_F(PtxMemory, WhatIsOutOfBoundsFaults) {
  const DeviceArray<uint32_t> array(memory_, 32);
  const auto code = [&](const std::string& body) { return on_array(body, array, kWarp).code; };
  EXPECT_EQ(code("ld.global.u32 %x1, [%rd];"), 0);
  EXPECT_EQ(code("ld.global.u32 %x1, [%rd+4];"), FaultCode::kIllegalAddress);
  EXPECT_EQ(code("st.global.u32 [%rd-4], %t;"), FaultCode::kIllegalAddress);
  EXPECT_EQ(code("ld.u32 %x1, [0];"), FaultCode::kIllegalAddress);
  EXPECT_EQ(code("ld.global.u32 %x1, [%rd+2];"), FaultCode::kMisalignedAddress);
  EXPECT_EQ(code("ld.global.v2.u32 {%x1, %x2}, [%rd0+4];"), FaultCode::kMisalignedAddress);
  EXPECT_EQ(code("ld.global.v4.u32 {%x1, %x2, %x3, %x4}, [%rd0+112];"), 0);
  EXPECT_EQ(code("ld.global.v4.u32 {%x1, %x2, %x3, %x4}, [%rd0+128];"), FaultCode::kIllegalAddress);
  EXPECT_EQ(code("atom.global.add.u32 %x1, [%rd+4], 1;"), FaultCode::kIllegalAddress);
  EXPECT_EQ(code(".shared .b32 s[4];\nst.shared.u32 [s+12], 1;"), 0);
  EXPECT_EQ(code(".shared .b32 s[4];\nst.shared.u32 [s+16], 1;"), FaultCode::kIllegalAddress);
  EXPECT_EQ(code(".shared .b32 s[4];\nst.shared.u32 [s-4], 1;"), FaultCode::kIllegalAddress);
  EXPECT_EQ(code(".local .b32 l[4];\nmov.u64 %rd2, l;\nst.local.u32 [%rd2+12], 1;"), 0);
  EXPECT_EQ(code(".local .b32 l[4];\nmov.u64 %rd2, l;\nst.local.u32 [%rd2+16], 1;"),
            FaultCode::kIllegalAddress);
  EXPECT_EQ(code(".local .b32 l[4];\nmov.u64 %rd2, l;\nst.local.u32 [%rd2-4], 1;"),
            FaultCode::kIllegalAddress);
  EXPECT_EQ(code("mov.u64 %rd2, -1;\nld.u8 %x1, [%rd2];"), FaultCode::kIllegalAddress);
  EXPECT_EQ(code("mov.u64 %rd2, 0x1000000000000000;\nld.u8 %x1, [%rd2];"),
            FaultCode::kIllegalAddress);
  EXPECT_EQ(code("mov.u64 %rd2, 0x3000000000000008;\nld.u8 %x1, [%rd2];"),
            FaultCode::kIllegalAddress);
  EXPECT_EQ(code("mov.u64 %rd2, p;\nld.param.u8 %x1, [%rd2+7];"), 0);
}

TEST_F(PtxMemory, FreedMemoryIsNotRememberedBetweenLaunches) {
  uint64_t address = 0;
  const auto module = load(
      ".visible .entry k(.param .u64 p) {\n.reg .b64 %a;\n.reg .b32 %x;\nld.param.u64 %a, "
      "[p];\nld.global.u32 %x, [%a];\nret;\n}\n");
  {
    const DeviceArray<uint32_t> array(memory_, 1);
    address = array.address();
    EXPECT_EQ(launch(module, "k", {}, address).code, 0);
  }
  EXPECT_EQ(launch(module, "k", {}, address).code, FaultCode::kIllegalAddress);
}

TEST_F(PtxMemory, IntegerAtomics) {
  const auto after = [this](const std::string& op, uint32_t start) {
    const DeviceArray<uint32_t> array(memory_, std::vector<uint32_t>{start});
    expect_array("atom.global." + op + " %x1, [%rd0], %t;", array, kWarp);
    return array[0];
  };
  EXPECT_EQ(after("add.u32", 5), 5U + 31 * 16);
  EXPECT_EQ(after("max.u32", 5), 31U);
  EXPECT_EQ(after("min.s32", 0xfffffff0), 0xfffffff0U);
  EXPECT_EQ(after("min.u32", 0xfffffff0), 0U);
  EXPECT_EQ(after("and.b32", 0xff), 0U);
  EXPECT_EQ(after("or.b32", 0x100), 0x11fU);
  EXPECT_EQ(after("xor.b32", 0x100), 0x100U);
  EXPECT_EQ(after("exch.b32", 77), 31U);
  const DeviceArray<uint32_t> wrap(memory_, std::vector<uint32_t>{3, 3});
  expect_array("atom.global.inc.u32 %x1, [%rd0], 9;\nred.global.dec.u32 [%rd0+4], 9;", wrap, kWarp);
  EXPECT_EQ(wrap[0], (3U + 32) % 10);
  EXPECT_EQ(wrap[1], (3U + 10 * 4 - 32) % 10);
  const DeviceArray<uint64_t> wide(memory_, std::vector<uint64_t>{uint64_t{1} << 40, 7, 0});
  expect_array(
      "cvt.u64.u32 %rd2, %t;\natom.add.u64 %rd3, [%rd0], %rd2;\nred.relaxed.gpu.global.max.s64 "
      "[%rd0+8], %rd2;\natom.global.cas.b64 %rd4, [%rd0+16], %rd2, 99;",
      wide, kWarp);
  EXPECT_EQ(wide[0], (uint64_t{1} << 40) + 496);
  EXPECT_EQ(wide[1], 31U);
  EXPECT_EQ(wide[2], 99U);
}

TEST_F(PtxMemory, AtomicsReturnWhatWasThere) {
  const DeviceArray<uint32_t> array(memory_, 33);
  // Each thread takes a ticket; all tickets are different.
  expect_array(
      "atom.shared.add.u32 %x1, [s], 1;\natom.global.add.u32 %x2, [%rd0+128], 1;\nmul.wide.u32 "
      "%rd2, %x2, 4;\nadd.u64 %rd3, %rd0, %rd2;\nst.global.u32 [%rd3], %x1;",
      array, kWarp, ".shared .u32 s;\n");
  EXPECT_EQ(array[32], 32U);
  for (uint32_t i = 1; i < 32; ++i) EXPECT_EQ(array[i] - array[i - 1], 1U);
}

TEST_F(PtxMemory, FloatAtomics) {
  const DeviceArray<float> singles(memory_, std::vector<float>{0.5F});
  expect_array("cvt.rn.f32.u32 %x1, %t;\nred.global.add.f32 [%rd0], %x1;", singles, kWarp);
  EXPECT_EQ(singles[0], 496.5F);
  const DeviceArray<double> doubles(memory_, std::vector<double>{0.25});
  expect_array("cvt.rn.f64.u32 %f1, %t;\natom.global.add.f64 %f2, [%rd0], %f1;", doubles, kWarp);
  EXPECT_EQ(doubles[0], 496.25);
  const DeviceArray<uint32_t> halves(memory_, std::vector<uint32_t>{0, 0});
  expect_array(
      "atom.global.add.noftz.f16x2 %x1, [%rd0], 0x3c004000;\nred.global.add.noftz.bf16x2 [%rd0+4], "
      "0x3f804000;",
      halves, kWarp);
  EXPECT_EQ(halves[0], 0x50005400U);
  EXPECT_EQ(halves[1], 0x42004280U);
  const DeviceArray<float> four(memory_, 4);
  expect_array("red.global.add.v4.f32 [%rd0], {0f3F800000, 0f40000000, 0f40400000, 0f40800000};",
               four, kWarp);
  for (size_t i = 0; i < 4; ++i) EXPECT_EQ(four[i], 32.0F * static_cast<float>(i + 1));
}

TEST_F(PtxMemory, CopyAsyncFillsWithZeros) {
  const DeviceArray<uint32_t> array(memory_, {1, 2, 3, 4, 0, 0, 0, 0, 9, 9, 9, 9});
  expect_array(
      "mov.u32 %x1, s;\ncp.async.cg.shared.global [%x1], [%rd0], 16;\ncp.async.ca.shared.global "
      "[%x1+16], [%rd0], 8, 4;\n"
      "cp.async.commit_group;\ncp.async.wait_group 0;\nld.shared.v4.u32 {%x2, %x3, %x4, %x5}, "
      "[%x1];\nst.global.v4.u32 [%rd0+16], {%x2, %x3, %x4, %x5};\n"
      "ld.shared.v2.u32 {%x2, %x3}, [%x1+16];\nst.global.v2.u32 [%rd0+32], {%x2, %x3};",
      array, {}, ".shared .align 16 .b8 s[32];\n");
  EXPECT_EQ(array[4], 1U);
  EXPECT_EQ(array[7], 4U);
  EXPECT_EQ(array[8], 1U);
  EXPECT_EQ(array[9], 0U);
}

TEST_F(PtxMemory, DynamicSharedMemoryLiesBehindTheStatic) {
  const std::string declared =
      ".extern .shared .align 16 .b8 dynamic[];\n.shared .align 4 .b8 fixed[20];\n";
  const std::string body =
      "mov.u32 %x1, dynamic;\nmov.u32 %x2, fixed;\nst.shared.u32 [%x2+16], 1;\nst.shared.u32 "
      "[%x1+60], 2;\nst.global.u32 [%rd0], %x1;\nmov.u32 %x3, %dynamic_smem_size;\nst.global.u32 "
      "[%rd0+4], %x3;";
  const DeviceArray<uint32_t> array(memory_, 2);
  expect_array(body, array, {.shared = 64}, declared);
  EXPECT_EQ(array[0], 32U);
  EXPECT_EQ(array[1], 64U);
  EXPECT_EQ(on_array(body, array, {.shared = 60}, declared).code, FaultCode::kIllegalAddress);
}

}  // namespace
}  // namespace rgpu::server::ptx
