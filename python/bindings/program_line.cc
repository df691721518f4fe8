// Reads the interpreter's own frames, whose layout belongs to one minor version of Python: 3.11 is
// known here; elsewhere the line is unknown.
#define PY_SSIZE_T_CLEAN
#include <Python.h>
#if PY_VERSION_HEX >= 0x030B0000 && PY_VERSION_HEX < 0x030C0000
#define RGPU_KNOWS_FRAMES 1
#define Py_BUILD_CORE
#include <internal/pycore_frame.h>
#undef Py_BUILD_CORE
#endif

#include <ATen/SequenceNumber.h>
#include <torch/csrc/autograd/function.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <mutex>
#include <unordered_map>
#include <vector>

#include "python/bindings/program_line.h"

namespace rgpu::backend {
namespace {

struct CodeLine {
  const void* code = nullptr;
  int32_t instruction = 0;
  bool operator==(const CodeLine&) const = default;
};
struct CodeLineHash {
  size_t operator()(const CodeLine& key) const noexcept {
    return std::hash<const void*>()(key.code) * 31 + static_cast<size_t>(key.instruction);
  }
};

// All lines met so far. Bounded: beyond kLinesMax a line is unknown.
class LineTable {
 public:
  static constexpr size_t kLinesMax = 1U << 20;

  uint32_t add(std::string text) {
    const std::lock_guard lock(mutex_);
    const auto known = ids_.find(text);
    if (known != ids_.end()) return known->second;
    if (lines_.size() == kLinesMax) return 0;
    const auto id = static_cast<uint32_t>(lines_.size());
    ids_.emplace(text, id);
    lines_.push_back(std::move(text));
    return id;
  }
  std::string text(uint32_t id) {
    const std::lock_guard lock(mutex_);
    return id < lines_.size() ? lines_[id] : std::string();
  }
  uint32_t pair(uint32_t backward, uint32_t forward) {
    if (forward == 0 || forward == backward) return backward;
    if (backward == 0) return forward;
    return add("backward of the op at " + text(forward) + ", called at " + text(backward));
  }

 private:
  std::mutex mutex_;
  std::vector<std::string> lines_ = std::vector<std::string>(1);  // 0: unknown.
  std::unordered_map<std::string, uint32_t> ids_;
};

LineTable& line_table() {
  static auto* table = new LineTable();
  return *table;
}

// Which line issued the forward op of each autograd node: a ring by sequence number, per thread.
struct ForwardLines {
  static constexpr size_t kCount = 1U << 14;
  struct Entry {
    uint64_t sequence = ~uint64_t{0};
    uint32_t location = 0;
  };
  std::array<Entry, kCount> entries;
  Entry& at(uint64_t sequence) { return entries[sequence & (kCount - 1)]; }
};

std::vector<std::string>& library_folders() {
  static auto* folders = new std::vector<std::string>();
  return *folders;
}

#ifdef RGPU_KNOWS_FRAMES

bool is_library_file(const std::string& file) {
  // Code without a file that is not typed by the user: frozen modules, generated functions.
  if (file.rfind("<frozen ", 0) == 0 || file.rfind("<__", 0) == 0 ||
      file.rfind("<eval_with_key>", 0) == 0)
    return true;
  const std::vector<std::string>& folders = library_folders();
  return std::any_of(folders.begin(), folders.end(),
                     [&](const std::string& folder) { return file.rfind(folder, 0) == 0; });
}

std::string file_of(PyCodeObject* code) {
  const char* text = PyUnicode_AsUTF8(code->co_filename);
  if (text == nullptr) PyErr_Clear();
  return text == nullptr ? std::string() : std::string(text);
}

// Code objects that were looked at may die, and others be made at their addresses: whoever
// remembers something by address forgets all of it when this has changed. Nothing is kept alive: a
// compiler's frames hold on to much.
std::atomic<uint64_t> deaths{0};

// With the GIL: the death of `code` will be counted.
void watch(PyCodeObject* code) {
  static const Py_ssize_t index =
      _PyEval_RequestCodeExtraIndex([](void*) { deaths.fetch_add(1, std::memory_order_relaxed); });
  static int mark;
  if (index >= 0) (void)_PyCode_SetExtra(reinterpret_cast<PyObject*>(code), index, &mark);
}

// What this thread knows of code objects, by their addresses.
struct KnownCode {
  std::unordered_map<const void*, bool> library;
  std::unordered_map<CodeLine, uint32_t, CodeLineHash> lines;
  uint64_t deaths_seen = 0;

  static KnownCode& get() {
    static thread_local KnownCode known;
    const uint64_t now = deaths.load(std::memory_order_relaxed);
    if (known.deaths_seen != now) [[unlikely]] {
      known.library.clear();
      known.lines.clear();
      known.deaths_seen = now;
    }
    return known;
  }
};

bool is_library_code(KnownCode& known, PyCodeObject* code) {
  const auto found = known.library.find(code);
  if (found != known.library.end()) return found->second;
  const PyGILState_STATE gil = PyGILState_Ensure();
  watch(code);
  const bool library = is_library_file(file_of(code));
  PyGILState_Release(gil);
  known.library.emplace(code, library);
  return library;
}

uint32_t line_of(KnownCode& known, PyCodeObject* code, int32_t instruction) {
  const CodeLine key{code, instruction};
  const auto found = known.lines.find(key);
  if (found != known.lines.end()) return found->second;
  const PyGILState_STATE gil = PyGILState_Ensure();
  const int line = PyCode_Addr2Line(code, instruction);
  const char* name = PyUnicode_AsUTF8(code->co_qualname);
  if (name == nullptr) PyErr_Clear();
  std::string text =
      file_of(code) + ":" + std::to_string(line) + " in " + (name == nullptr ? "?" : name);
  PyGILState_Release(gil);
  const uint32_t id = line_table().add(std::move(text));
  known.lines.emplace(key, id);
  return id;
}

uint32_t calling_line() {
  const PyThreadState* thread = PyGILState_GetThisThreadState();
  if (thread == nullptr || thread->cframe == nullptr) return 0;
  KnownCode& known = KnownCode::get();
  for (_PyInterpreterFrame* frame = thread->cframe->current_frame; frame != nullptr;
       frame = frame->previous) {
    if (frame->f_code == nullptr || _PyFrame_IsIncomplete(frame)) continue;
    if (is_library_code(known, frame->f_code)) continue;
    const auto instruction =
        static_cast<int32_t>(_PyInterpreterFrame_LASTI(frame) * sizeof(_Py_CODEUNIT));
    return line_of(known, frame->f_code, instruction);
  }
  return 0;
}

#else

uint32_t calling_line() { return 0; }

#endif

}  // namespace

uint32_t program_location() {
  static thread_local ForwardLines forward;
  static thread_local std::unordered_map<uint64_t, uint32_t> pairs;
  const uint32_t line = calling_line();
  const auto node = torch::autograd::get_current_node();
  if (node == nullptr) {
    const uint64_t next = at::sequence_number::peek();
    if (next != 0) forward.at(next - 1) = {next - 1, line};
    return line;
  }
  const ForwardLines::Entry& entry = forward.at(node->sequence_nr());
  if (entry.sequence != node->sequence_nr() || entry.location == 0) return line;
  const uint64_t key = (uint64_t{line} << 32) | entry.location;
  const auto found = pairs.find(key);
  if (found != pairs.end()) return found->second;
  const uint32_t pair = line_table().pair(line, entry.location);
  pairs.emplace(key, pair);
  return pair;
}

void set_library_folders(std::vector<std::string> folders) {
  library_folders() = std::move(folders);
}

std::string describe_program_location(uint32_t location) { return line_table().text(location); }

}  // namespace rgpu::backend
