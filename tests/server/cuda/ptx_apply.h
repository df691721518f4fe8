// One instruction over arrays of operands: a thread an element.
#pragma once

#include "tests/server/cuda/ptx_fixture.h"

namespace rgpu::server::ptx {

class PtxInstructionTest : public PtxTest {
 protected:
  // `body` computes %d from %a, %b and %c, whose widths are those of the types; more registers:
  // %x<8> of 32 bits, %w<8> of 64, %h<8> of 16, %p<8>.
  template <typename D, typename A, typename B = uint32_t, typename C = uint32_t>
  std::vector<D> apply(const std::string& body, const std::vector<A>& a,
                       const std::vector<B>& b = {}, const std::vector<C>& c = {}) {
    std::string text =
        ".visible .entry k(.param .u64 pd, .param .u64 pa, .param .u64 pb, .param .u64 pc)\n{\n";
    text +=
        ".reg .b32 %x<8>;\n.reg .b64 %w<8>;\n.reg .b16 %h<8>;\n.reg .pred %p<8>;\n.reg .b32 "
        "%t;\n.reg .b64 %r<5>;\n";
    text += declare<D>("%d") + declare<A>("%a") + declare<B>("%b") + declare<C>("%c");
    text += "mov.u32 %t, %tid.x;\n";
    text += fetch<A>("pa", "%a");
    if (!b.empty()) text += fetch<B>("pb", "%b");
    if (!c.empty()) text += fetch<C>("pc", "%c");
    text += body + "\n";
    text += place<D>("pd") + "st.global.b" + bits<D>() + " [%r4], %d;\nret;\n}\n";
    const std::shared_ptr<Module> module = load(text);
    if (module == nullptr) return std::vector<D>(a.size());
    EXPECT_EQ(module->kernels()[0].error, "") << body;
    const DeviceArray<D> dd(memory_, a.size());
    const DeviceArray<A> da(memory_, a);
    const DeviceArray<B> db(memory_, b);
    const DeviceArray<C> dc(memory_, c);
    const auto count = static_cast<uint32_t>(a.size());
    const Fault fault = launch(module, "k", {.block = {count, 1, 1}}, dd.address(), da.address(),
                               db.address(), dc.address());
    EXPECT_EQ(fault.code, 0) << fault.message << "\n" << body;
    return std::vector<D>(dd.data(), dd.data() + a.size());
  }

  // All pairs of `values`, in two arrays.
  template <typename T>
  static std::pair<std::vector<T>, std::vector<T>> pairs(const std::vector<T>& values) {
    std::pair<std::vector<T>, std::vector<T>> result;
    for (const T x : values) {
      for (const T y : values) {
        result.first.push_back(x);
        result.second.push_back(y);
      }
    }
    return result;
  }

  // d = f(a, b) for all pairs, compared as bits.
  template <typename D, typename T, typename F>
  void expect_pairs(const std::string& body, const std::vector<T>& values, F&& f) {
    const auto [a, b] = pairs(values);
    const std::vector<D> got = apply<D, T, T>(body, a, b);
    for (size_t i = 0; i < a.size(); ++i) {
      const D expected = f(a[i], b[i]);
      ASSERT_EQ(std::memcmp(&got[i], &expected, sizeof(D)), 0)
          << body << ": " << +a[i] << ", " << +b[i] << " gave " << +got[i] << ", not " << +expected;
    }
  }
  template <typename D, typename T, typename F>
  void expect_each(const std::string& body, const std::vector<T>& values, F&& f) {
    const std::vector<D> got = apply<D, T>(body, values);
    for (size_t i = 0; i < values.size(); ++i) {
      const D expected = f(values[i]);
      ASSERT_EQ(std::memcmp(&got[i], &expected, sizeof(D)), 0)
          << body << ": " << +values[i] << " gave " << +got[i] << ", not " << +expected;
    }
  }

  template <typename D, typename T, typename F>
  void expect_pairs(const std::string& body, std::initializer_list<T> values, F&& f) {
    expect_pairs<D>(body, std::vector<T>(values), std::forward<F>(f));
  }
  template <typename D, typename T, typename F>
  void expect_each(const std::string& body, std::initializer_list<T> values, F&& f) {
    expect_each<D>(body, std::vector<T>(values), std::forward<F>(f));
  }

 private:
  template <typename T>
  static std::string bits() {
    return std::to_string(8 * sizeof(T));
  }
  template <typename T>
  static std::string declare(const std::string& name) {
    return ".reg .b" + std::to_string(std::max<size_t>(16, 8 * sizeof(T))) + " " + name + ";\n";
  }
  template <typename T>
  static std::string place(const std::string& parameter) {
    return "ld.param.u64 %r1, [" + parameter + "];\nmul.wide.u32 %r2, %t, " +
           std::to_string(sizeof(T)) + ";\nadd.u64 %r4, %r1, %r2;\n";
  }
  template <typename T>
  static std::string fetch(const std::string& parameter, const std::string& name) {
    return place<T>(parameter) + "ld.global.b" + bits<T>() + " " + name + ", [%r4];\n";
  }
};

}  // namespace rgpu::server::ptx
