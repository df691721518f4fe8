#include "python/bindings/interpreter.h"

#include <Python.h>
#include <torch/csrc/Exceptions.h>

#include "python/bindings/program_line.h"
#include "python/bindings/progress_line.h"
#include "torch_backend/device/client.h"

namespace rgpu::backend {
namespace {

// Gives up the GIL while its thread waits, if the thread holds it, looks for Ctrl-C and shows how a
// long transfer gets on.
class InterpreterObserver final : public NotingObserver {
 public:
  void before_wait() override {
    progress_.begin(Client::get().stats());
    state_ = Py_IsInitialized() != 0 && PyGILState_Check() != 0 ? PyEval_SaveThread() : nullptr;
  }
  void after_wait() override {
    progress_.clear();
    if (state_ != nullptr) PyEval_RestoreThread(state_);
    state_ = nullptr;
  }
  bool keep_waiting() override {
    progress_.update(Client::get().stats());
    if (Py_IsInitialized() == 0) return true;
    const PyGILState_STATE gil = PyGILState_Ensure();
    const bool interrupted = PyErr_CheckSignals() != 0;
    PyGILState_Release(gil);  // What is pending stays with this thread's state.
    return !interrupted;
  }

 private:
  PyThreadState* state_ = nullptr;
  ProgressLine progress_;
};

WaitObserver& thread_observer() {
  static thread_local InterpreterObserver observer;
  return observer;
}

void throw_interrupted() {
  const PyGILState_STATE gil = PyGILState_Ensure();
  if (PyErr_Occurred() == nullptr) PyErr_SetNone(PyExc_KeyboardInterrupt);
  python_error error;
  error.persist();
  PyGILState_Release(gil);
  throw error;
}

// rgpu.debugging.stack(); "" where that fails, since an error is being told already.
std::string program_stack() {
  const PyGILState_STATE gil = PyGILState_Ensure();
  std::string text;
  PyObject* module = PyImport_ImportModule("rgpu.debugging");
  PyObject* stack = module == nullptr ? nullptr : PyObject_CallMethod(module, "stack", nullptr);
  const char* utf8 = stack == nullptr ? nullptr : PyUnicode_AsUTF8(stack);
  if (utf8 != nullptr) text = utf8;
  PyErr_Clear();
  Py_XDECREF(stack);
  Py_XDECREF(module);
  PyGILState_Release(gil);
  return text;
}

// Python's NotImplementedError, and PyTorch's ways to say that a shape depends on data.
bool is_unimplemented(const std::exception_ptr& error) {
  try {
    std::rethrow_exception(error);
  } catch (python_error& raised) {
    const PyGILState_STATE gil = PyGILState_Ensure();
    raised.persist();  // Fetches what is still pending; whoever rethrows restores it.
    if (raised.type == nullptr) {
      PyGILState_Release(gil);
      return false;
    }
    const bool by_type = PyErr_GivenExceptionMatches(raised.type, PyExc_NotImplementedError) != 0;
    const char* name =
        PyType_Check(raised.type) ? reinterpret_cast<PyTypeObject*>(raised.type)->tp_name : "";
    const std::string text = name;
    const bool by_name = text.find("DynamicOutputShapeException") != std::string::npos ||
                         text.find("DataDependentOutputException") != std::string::npos ||
                         text.find("UnsupportedOperatorException") != std::string::npos;
    PyGILState_Release(gil);
    return by_type || by_name;
  } catch (const std::exception& raised) {
    const std::string text = raised.what();
    return text.find("Tensor.item() cannot be called on meta tensors") != std::string::npos ||
           text.find("Cannot copy out of meta tensor") != std::string::npos;
  } catch (...) {
    return false;
  }
}

// torch._C._dynamo.eval_frame.set_eval_frame(callback): what was set before, a new reference.
PyObject* set_frame_callback(PyObject* callback) {
  PyObject* module = PyImport_ImportModule("torch._C._dynamo.eval_frame");
  PyObject* before =
      module == nullptr ? nullptr : PyObject_CallMethod(module, "set_eval_frame", "O", callback);
  Py_XDECREF(module);
  return before;
}

bool is_compiler_loaded() {
  PyObject* modules = PyImport_GetModuleDict();  // Borrowed.
  return modules != nullptr && PyDict_GetItemString(modules, "torch._dynamo") != nullptr;
}

// warnings.catch_warnings() with everything ignored, and a compiler that is capturing a program
// does not see the frames.
class QuietScope {
 public:
  explicit QuietScope(bool warnings) {
    const PyGILState_STATE gil = PyGILState_Ensure();
    if (is_compiler_loaded()) frame_callback_ = set_frame_callback(Py_None);
    PyObject* module = warnings ? PyImport_ImportModule("warnings") : nullptr;
    if (module != nullptr) {
      context_ = PyObject_CallMethod(module, "catch_warnings", nullptr);
      if (context_ != nullptr) Py_XDECREF(PyObject_CallMethod(context_, "__enter__", nullptr));
      Py_XDECREF(PyObject_CallMethod(module, "simplefilter", "s", "ignore"));
      Py_DECREF(module);
    }
    PyErr_Clear();
    PyGILState_Release(gil);
  }
  ~QuietScope() {
    const PyGILState_STATE gil = PyGILState_Ensure();
    PyObject* pending = nullptr;
    PyObject* value = nullptr;
    PyObject* traceback = nullptr;
    PyErr_Fetch(&pending, &value, &traceback);
    if (context_ != nullptr) {
      Py_XDECREF(PyObject_CallMethod(context_, "__exit__", "OOO", Py_None, Py_None, Py_None));
      Py_DECREF(context_);
    }
    if (frame_callback_ != nullptr) {
      Py_XDECREF(set_frame_callback(frame_callback_));
      Py_DECREF(frame_callback_);
    }
    PyErr_Restore(pending, value, traceback);
    PyGILState_Release(gil);
  }
  QuietScope(const QuietScope&) = delete;
  QuietScope& operator=(const QuietScope&) = delete;

 private:
  PyObject* context_ = nullptr;
  PyObject* frame_callback_ = nullptr;
};

std::shared_ptr<void> quiet_scope(bool warnings) { return std::make_shared<QuietScope>(warnings); }

}  // namespace

void install_interpreter_hooks() {
  HostHooks& hooks = Client::hooks();
  hooks.location = &program_location;
  hooks.describe_location = &describe_program_location;
  hooks.is_unimplemented = &is_unimplemented;
  hooks.observer = &thread_observer;
  hooks.quiet = &quiet_scope;
  hooks.throw_interrupted = &throw_interrupted;
  hooks.stack = &program_stack;
}

}  // namespace rgpu::backend
