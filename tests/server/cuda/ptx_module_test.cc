// Loading and linking: what a module says of its kernels, and what it refuses.
#include "tests/server/cuda/ptx_fixture.h"

namespace rgpu::server::ptx {
namespace {

constexpr const char* kHead = ".version 8.4\n.target sm_80, debug\n.address_size 64\n";

class PtxModule : public PtxTest {
 protected:
  std::string error_of(const std::string& text) {
    const auto module = Module::load(kHead + text, {.memory = &memory_});
    return module ? "" : module.error().message();
  }
  Result<std::shared_ptr<Module>> link(const std::vector<std::string>& texts) {
    std::vector<std::string> whole;
    for (const std::string& text : texts) whole.push_back(kHead + text);
    const std::vector<std::string_view> views(whole.begin(), whole.end());
    return Module::load(views, {.memory = &memory_});
  }
};

TEST_F(PtxModule, KernelsDescribeThemselves) {
  const auto module = load(std::string(kHead) + R"(
    .shared .align 8 .b8 shared_by_both[24];
    .const .align 4 .b8 constants[100];
    .global .align 8 .b8 data[48];
    .visible .entry k(.param .u32 a, .param .align 16 .b8 b[20], .param .u8 c, .param .u64 d)
    .maxntid 128, 2, 1
    .reqntid 64, 1, 1
    {
      .local .align 16 .b8 depot[40];
      .reg .b32 %r<4>;
      mov.u32 %r1, shared_by_both;
      ret;
    }
    .entry other() { ret; })");
  const Kernel* kernel = module->kernel("k");
  ASSERT_NE(kernel, nullptr);
  ASSERT_EQ(kernel->parameters.size(), 4U);
  EXPECT_EQ(kernel->parameters[1].offset_bytes, 16U);
  EXPECT_EQ(kernel->parameters[1].size_bytes, 20U);
  EXPECT_EQ(kernel->parameters[2].offset_bytes, 36U);
  EXPECT_EQ(kernel->parameters[3].offset_bytes, 40U);
  EXPECT_EQ(kernel->parameter_size_bytes, 48U);
  EXPECT_EQ(kernel->static_shared_size_bytes, 24U);
  EXPECT_EQ(kernel->local_size_bytes, 48U);
  EXPECT_EQ(kernel->const_size_bytes, 100U);
  EXPECT_EQ(kernel->threads_max, 256U);
  EXPECT_EQ(kernel->required_block[0], 64U);
  EXPECT_EQ(kernel->ptx_version, 84U);
  EXPECT_EQ(kernel->binary_version, 80U);
  EXPECT_GE(kernel->register_count, 16U);
  ASSERT_NE(module->kernel("other"), nullptr);
  EXPECT_EQ(module->kernel("other")->static_shared_size_bytes, 0U);
  EXPECT_EQ(module->kernel("absent"), nullptr);
  const Variable* data = module->variable("data");
  ASSERT_NE(data, nullptr);
  EXPECT_EQ(data->size_bytes, 48U);
  EXPECT_FALSE(data->is_constant);
  EXPECT_TRUE(module->variable("constants")->is_constant);
}

TEST_F(PtxModule, VariablesAreFreedWithTheModule) {
  const size_t before = memory_.count();
  {
    const auto module = load(".global .b8 a[100];\n.const .b8 b[4];\n");
    EXPECT_EQ(memory_.count(), before + 2);
  }
  EXPECT_EQ(memory_.count(), before);
}

TEST_F(PtxModule, WhatIsNotEmulatedNamesOpcodeKernelAndLine) {
  const auto module = load(R"(
    .visible .entry gemm() {
      .reg .f32 %f<9>; .reg .b32 %r<9>;
      mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%f1, %f2, %f3, %f4}, {%r1, %r2, %r3, %r4}, {%r5, %r6}, {%f5, %f6, %f7, %f8};
      ret;
    }
    .func helper() { .reg .b64 %rd<3>; .reg .b32 %r<3>; cp.async.bulk.commit_group; ret; }
    .visible .entry caller() { call helper; ret; }
    .visible .entry fine() { ret; })");
  const Fault fault = launch(module, "gemm", {});
  EXPECT_EQ(fault.code, FaultCode::kInvalidPtx);
  EXPECT_EQ(fault.message,
            "kernel gemm: mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 is not emulated (PTX "
            "line 7)");
  EXPECT_NE(launch(module, "caller", {}).message.find("cp.async.bulk.commit_group"),
            std::string::npos);
  EXPECT_EQ(launch(module, "fine", {}).code, 0);
}

TEST_F(PtxModule, MistakesInsideAKernelAreItsOwn) {
  const auto message = [this](const std::string& body) {
    const auto module =
        load(".visible .entry k() {\n.reg .b32 %r<4>;\n.reg .b64 %d<2>;\n.reg .pred %p;\n" + body +
             "\nret;\n}\n");
    return module == nullptr ? "" : module->kernels()[0].error;
  };
  EXPECT_NE(message("add.u32 %r1, %r2, %r9;").find("%r9"), std::string::npos);
  EXPECT_NE(message("add.u32 %r1, %d1, 1;").find("32 bits"), std::string::npos);
  EXPECT_NE(message("bra NOWHERE;").find("NOWHERE"), std::string::npos);
  EXPECT_NE(message("call nothing;").find("nothing"), std::string::npos);
  EXPECT_NE(message("ld.param.u32 %r1, [absent];").find("absent"), std::string::npos);
  EXPECT_NE(message("add.u32 %r1, %r2;").find("operands"), std::string::npos);
  EXPECT_NE(message("@%q add.u32 %r1, %r2, 1;").find("%q"), std::string::npos);
  EXPECT_NE(message("mul.wide.u64 %r1, %r2, 1;").find("mul.wide.u64"), std::string::npos);
  EXPECT_NE(message("tex.2d.v4.f32.f32 {%r1, %r1, %r1, %r1}, [%d1, {%r2, %r3}];").find("tex.2d"),
            std::string::npos);
  EXPECT_EQ(message("add.u32 %r1, %r2, 1;"), "");
}

TEST_F(PtxModule, WhatIsNoPtxIsRefused) {
  EXPECT_NE(error_of(".visible .entry k( {").find("line 4"), std::string::npos);
  EXPECT_NE(error_of(".bogus x;").find(".bogus"), std::string::npos);
  EXPECT_NE(error_of(".global .u32 x = {1, 2};").find("x"), std::string::npos);
  EXPECT_NE(error_of(".global .u64 x = y;").find("y"), std::string::npos);
  EXPECT_NE(error_of(".extern .global .u32 elsewhere;").find("elsewhere"), std::string::npos);
  EXPECT_NE(error_of(".global .b8 x[99999999999];").find("large"), std::string::npos);
  EXPECT_NE(error_of(".visible .entry k() { ret; ").find("end"), std::string::npos);
  EXPECT_FALSE(Module::load("", {.memory = &memory_}));
  EXPECT_FALSE(
      Module::load("\x7f"
                   "ELF",
                   {.memory = &memory_}));
  EXPECT_FALSE(Module::load(std::string(100000, '{'), {.memory = &memory_}));
  EXPECT_FALSE(Module::load(".version 99.99.9", {.memory = &memory_}));
}

TEST_F(PtxModule, TextsAreLinked) {
  const auto linked = link({R"(
      .extern .func (.param .b32 r) add_one(.param .b32 a);
      .extern .global .align 4 .u32 shared_counter;
      .func (.param .b32 r) hidden(.param .b32 a) { st.param.b32 [r], 1; ret; }
      .weak .global .u32 both = 5;
      .visible .entry k(.param .u64 p) {
        .reg .b64 %rd; .reg .b32 %x<5>;
        ld.param.u64 %rd, [p];
        { .param .b32 a; .param .b32 r; st.param.b32 [a], 41; call (r), add_one, (a); ld.param.b32 %x1, [r]; }
        st.global.u32 [%rd], %x1;
        ld.global.u32 %x2, [shared_counter];
        st.global.u32 [%rd+4], %x2;
        { .param .b32 a; .param .b32 r; st.param.b32 [a], 41; call (r), hidden, (a); ld.param.b32 %x3, [r]; }
        st.global.u32 [%rd+8], %x3;
        ret;
      })",
                            R"(
      .visible .global .align 4 .u32 shared_counter = 77;
      .weak .global .u32 both = 6;
      .func (.param .b32 r) hidden(.param .b32 a) { st.param.b32 [r], 2; ret; }
      .visible .func (.param .b32 r) add_one(.param .b32 a) {
        .reg .b32 %x; ld.param.b32 %x, [a]; add.u32 %x, %x, 1; st.param.b32 [r], %x; ret;
      })"});
  ASSERT_TRUE(linked) << linked.error().to_string();
  const DeviceArray<uint32_t> out(memory_, 3);
  const Fault fault = launch(*linked, "k", {}, out.address());
  EXPECT_EQ(fault.code, 0) << fault.message;
  EXPECT_EQ(out[0], 42U);
  EXPECT_EQ(out[1], 77U);
  EXPECT_EQ(out[2], 1U);
  uint32_t count = 0;
  for (const Variable& variable : (*linked)->variables()) count += variable.name == "both" ? 1 : 0;
  EXPECT_EQ(count, 1U);
}

TEST_F(PtxModule, LaunchesAreChecked) {
  const auto module = load(".visible .entry k(.param .u64 p) { ret; }\n");
  Launch launch;
  launch.module = module;
  launch.kernel = module->kernel("k");
  environment_.pool = &pool_;
  EXPECT_EQ(run(launch, environment_).code, FaultCode::kInvalidValue);  // No parameters.
  launch.parameters.resize(8);
  EXPECT_EQ(run(launch, environment_).code, 0);
  launch.block = {33, 32, 1};
  EXPECT_EQ(run(launch, environment_).code, FaultCode::kInvalidValue);
  launch.block = {0, 1, 1};
  EXPECT_EQ(run(launch, environment_).code, FaultCode::kInvalidValue);
  launch.block = {1, 1, 1};
  launch.grid = {1, 70000, 1};
  EXPECT_EQ(run(launch, environment_).code, FaultCode::kInvalidValue);
}

}  // namespace
}  // namespace rgpu::server::ptx
