// rgpu._C: the thin binding of the device to Python. The package's modules say what each is for.
#include <pybind11/pybind11.h>
#include <pybind11/stl.h>
#include <torch/csrc/utils/pybind.h>

#include <unordered_map>

#include "python/bindings/graphs.h"
#include "python/bindings/interpreter.h"
#include "python/bindings/program_line.h"
#include "python/bindings/translated.h"
#include "torch_backend/aten/registrations.h"
#include "torch_backend/device/client.h"
#include "torch_backend/device/generator.h"
#include "torch_backend/device/guard.h"
#include "torch_backend/device/hooks.h"
#include "torch_backend/device/stream.h"
#include "torch_backend/device/switches.h"
#include "torch_backend/device/trace.h"
#include "torch_backend/distributed/host_staged_backend.h"

namespace py = pybind11;

namespace {

using rgpu::backend::Client;
using rgpu::backend::translated;

py::dict stats() {
  const rgpu::SessionStats s = Client::get().stats();
  py::dict d;
  d["records"] = s.records;
  d["messages"] = s.records;
  d["frees"] = s.frees;
  d["templates"] = s.templates;
  d["frames"] = s.frames;
  d["waits"] = s.waits;
  d["stalls"] = s.stalls;
  d["bytes_out"] = s.bytes_out;
  d["bytes_in"] = s.bytes_in;
  d["payload_bytes_out"] = s.payload_bytes_out;
  d["payload_bytes_in"] = s.payload_bytes_in;
  d["wakeups"] = s.wakeups;
  d["wait_ns"] = s.wait_ns;
  d["server_busy_ns"] = s.server_busy_ns;
  d["server_idle_ns"] = s.server_idle_ns;
  return d;
}

py::dict server() {
  return translated([] {
    const rgpu::wire::HelloReply info = Client::get().server_info();
    py::list devices;
    for (const rgpu::wire::DeviceInfo& device : info.devices) {
      devices.append(py::make_tuple(device.name, device.memory_size_bytes));
    }
    py::dict d;
    d["server_version"] = info.server_version;
    d["torch_version"] = info.torch_version;
    d["protocol_version"] = info.protocol_version;
    d["device_type"] = info.device_type;
    d["devices"] = devices;
    return d;
  });
}

py::list waits() {
  py::list rows;
  for (const rgpu::backend::WaitSite& site : Client::get().wait_sites()) {
    const std::string line = rgpu::backend::describe_program_location(site.location);
    rows.append(py::make_tuple(line.empty() ? "unknown" : line, site.count,
                               static_cast<double>(site.wait_ns) * 1e-9));
  }
  return rows;
}

// Program lines as text, each described once.
class Lines {
 public:
  const std::string& of(uint32_t location) {
    const auto [found, is_new] = lines_.try_emplace(location);
    if (is_new) found->second = rgpu::backend::describe_program_location(location);
    return found->second;
  }

 private:
  std::unordered_map<uint32_t, std::string> lines_;
};

py::dict stop_trace() {
  using rgpu::backend::ns_of;
  return translated([] {
    const rgpu::backend::TraceData data = rgpu::backend::Trace::get().stop();
    Lines lines;
    py::list calls;
    for (const rgpu::backend::TracedCall& call : data.calls) {
      calls.append(py::make_tuple(call.name, lines.of(call.location), call.thread, call.stream,
                                  call.is_wait, call.record, call.begin_ns, call.end_ns));
    }
    py::list batches;
    for (const rgpu::backend::TracedBatch& batch : data.batches) {
      batches.append(py::make_tuple(batch.sent.last_record, batch.sent.records,
                                    batch.sent.size_bytes, ns_of(batch.sent.began),
                                    ns_of(batch.sent.ended), batch.applied_ns));
    }
    py::list server;
    for (const rgpu::wire::TraceEvent& event : data.server) {
      server.append(
          py::make_tuple(event.kind, event.record, event.stream, event.begin_ns, event.end_ns));
    }
    py::dict d;
    d["calls"] = calls;
    d["batches"] = batches;
    d["server"] = server;
    d["begin_ns"] = data.begin_ns;
    d["end_ns"] = data.end_ns;
    d["server_offset_ns"] = data.server_offset_ns;
    d["server_uncertain_ns"] = data.server_uncertain_ns;
    d["lost"] = data.lost;
    return d;
  });
}

rgpu::backend::Generator& generator_of(int device) {
  rgpu::backend::check_device(device);
  return rgpu::backend::generator_for(nullptr, static_cast<c10::DeviceIndex>(device));
}

}  // namespace

PYBIND11_MODULE(_C, m) {
  m.def("register_device", [](std::vector<std::string> library_folders) {
    rgpu::backend::set_library_folders(std::move(library_folders));
    rgpu::backend::install_interpreter_hooks();
    rgpu::backend::register_device();
    rgpu::backend::register_kernels();
    rgpu::backend::register_reducer_timer();
  });
  rgpu::backend::bind_graphs(m);
  m.def("connect", [](const std::string& address, double timeout_s) {
    translated([&] { Client::get().connect(address, timeout_s); });
  });
  m.def("close", [] {
    const py::gil_scoped_release no_gil;
    Client::get().close();
  });
  m.def("connected", [] { return Client::get().connected(); });
  m.def("synchronize", [] { translated([] { rgpu::backend::synchronize_devices(); }); });
  m.def("device_count", [] { return translated([] { return Client::get().device_count(); }); });
  m.def("current_device", [] { return static_cast<int>(rgpu::backend::current_device()); });
  m.def("set_device",
        [](int index) { translated([&] { rgpu::backend::set_current_device(index); }); });
  m.def("check_device", [](int index) { translated([&] { rgpu::backend::check_device(index); }); });
  m.def("server", &server);
  m.def("stats", &stats);
  m.def("waits", &waits);
  m.def("start_trace", [] { translated([] { rgpu::backend::Trace::get().start(); }); });
  m.def("stop_trace", &stop_trace);
  m.def("host_staged_backend",
        [](const c10::intrusive_ptr<c10d::Backend>& host) -> c10::intrusive_ptr<c10d::Backend> {
          return c10::make_intrusive<rgpu::backend::HostStagedBackend>(host);
        });
  m.def("reset_waits", [] { Client::get().reset_wait_sites(); });
  m.def("note_flush_denormal",
        [](bool on) { rgpu::backend::SwitchWatch::get().note_flush_denormal(on); });
  m.def("flush_policy", [] { return Client::get().flush_policy(); });
  m.def("get_rng_state", [](int device) {
    return translated([&] { return at::Tensor(generator_of(device).get_state()); });
  });
  m.def("set_rng_state", [](const at::Tensor& state, int device) {
    translated([&] { generator_of(device).set_state(*state.unsafeGetTensorImpl()); });
  });
  m.def("manual_seed_all",
        [](uint64_t seed) { translated([&] { rgpu::backend::seed_default_generators(seed); }); });
  m.def("set_flush_policy",
        [](const std::string& name) { translated([&] { Client::get().set_flush_policy(name); }); });
}
