#include "server/cuda/emulated/ptx_module.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <deque>
#include <unordered_map>
#include <unordered_set>

#include "server/cuda/emulated/ptx_lowering.h"
#include "server/cuda/emulated/ptx_syntax.h"

namespace rgpu::server::ptx {
namespace {

constexpr size_t kTextSizeMax = size_t{256} << 20;
constexpr uint64_t kParametersSizeMax = 32764;  // As CUDA since 12.1.

Status invalid(std::string message) { return {Code::kInvalidArgument, std::move(message)}; }

}  // namespace

Module::Module(Memory* memory) : memory_(memory), program_(std::make_unique<Program>()) {}

Module::~Module() {
  for (const uint64_t address : allocations_) memory_->free(address);
}

const Kernel* Module::kernel(std::string_view name) const {
  for (const Kernel& each : kernels_) {
    if (each.name == name) return &each;
  }
  return nullptr;
}

const Variable* Module::variable(std::string_view name) const {
  for (const Variable& each : variables_) {
    if (each.name == name) return &each;
  }
  return nullptr;
}

// Links texts into one module: names first, then memory, then code.
class ModuleBuilder {
 public:
  explicit ModuleBuilder(const LoadOptions& options)
      : options_(options), module_(new Module(options.memory)) {}

  Result<std::shared_ptr<Module>> build(std::span<const std::string_view> texts) {
    if (options_.memory == nullptr) return invalid("a module needs memory");
    units_.resize(texts.size());
    for (size_t i = 0; i < texts.size(); ++i) {
      if (texts[i].size() > kTextSizeMax) return invalid("PTX of more than 256 MiB");
      // As cuModuleLoadData has it, the text ends at its first zero.
      Result<ModuleSyntax> syntax = parse_module(texts[i].substr(0, texts[i].find('\0')));
      if (!syntax) return syntax.error();
      units_[i].syntax = std::move(*syntax);
      units_[i].globals = &globals_;
    }
    for (Unit& unit : units_) RGPU_RETURN_IF_ERROR(declare(unit));
    for (Unit& unit : units_) RGPU_RETURN_IF_ERROR(initialize(unit));
    for (Unit& unit : units_) RGPU_RETURN_IF_ERROR(add_kernels(unit));
    lower_all();
    for (Kernel& kernel : module_->kernels_) finish(kernel);
    return module_;
  }

 private:
  // One text: its own names, then those that others show.
  struct Unit : SymbolTable {
    ModuleSyntax syntax;
    std::unordered_map<std::string_view, Symbol> names;
    const std::unordered_map<std::string_view, Symbol>* globals = nullptr;

    const Symbol* find(std::string_view name) const override {
      if (const auto own = names.find(name); own != names.end()) return &own->second;
      const auto other = globals->find(name);
      return other == globals->end() ? nullptr : &other->second;
    }
  };
  struct Definition {
    Unit* unit = nullptr;
    const FunctionSyntax* syntax = nullptr;
    Function* function = nullptr;
    size_t kernel = SIZE_MAX;
  };

  Status declare(Unit& unit) {
    for (const Declaration& each : unit.syntax.variables)
      RGPU_RETURN_IF_ERROR(declare_variable(unit, each));
    std::unordered_set<std::string_view> defined;
    for (const FunctionSyntax& each : unit.syntax.functions) {
      if (each.has_body) defined.insert(each.name);
    }
    for (const FunctionSyntax& each : unit.syntax.functions) {
      if (each.has_body || !defined.contains(each.name)) declare_function(unit, each);
    }
    for (const auto& [name, target] : unit.syntax.aliases) {
      const Symbol* symbol = unit.find(target);
      if (symbol == nullptr)
        return invalid(".alias of " + std::string(target) + ", which is not declared");
      unit.names.insert_or_assign(name, *symbol);
    }
    return {};
  }

  // The first definition that others may see stands; one that is not weak before all.
  bool publish(std::string_view name, const Symbol& symbol, bool is_weak) {
    const auto [found, is_new] = globals_.try_emplace(name, symbol);
    if (is_new) {
      if (is_weak) weak_.insert(name);
      return true;
    }
    if (is_weak || weak_.erase(name) == 0) return false;
    found->second = symbol;
    return true;
  }

  Status declare_variable(Unit& unit, const Declaration& declaration) {
    Symbol symbol;
    if (declaration.storage == Storage::kShared) {
      symbol.kind = Symbol::Kind::kShared;
      symbol.index = static_cast<uint32_t>(module_->program_->shared.size());
      module_->program_->shared.push_back(
          {std::string(declaration.name),
           static_cast<uint32_t>(std::min<uint64_t>(declaration.size_bytes(), UINT32_MAX)),
           declaration.align_bytes(), declaration.open_array});
      unit.names.insert_or_assign(declaration.name, symbol);
      return {};
    }
    if (declaration.storage != Storage::kGlobal && declaration.storage != Storage::kConst) {
      return invalid("PTX line " + std::to_string(declaration.line) +
                     ": a variable outside of functions in another space");
    }
    if (declaration.is_extern) return {};
    if (unit.names.contains(declaration.name)) {
      return invalid("variable " + std::string(declaration.name) + " is defined twice");
    }
    if (declaration.is_weak && globals_.contains(declaration.name)) return {};
    Declaration sized = declaration;
    if (sized.open_array) sized.element_count = sized.initializer.size();
    const uint64_t size = std::max<uint64_t>(sized.size_bytes(), 1);
    const Result<uint64_t> address =
        options_.memory->allocate(size, std::max(16U, sized.align_bytes()));
    if (!address) return address.error().with_context("variable " + std::string(declaration.name));
    module_->allocations_.push_back(*address);
    std::memset(reinterpret_cast<void*>(*address), 0, size);
    symbol.address = *address;
    unit.names.insert_or_assign(declaration.name, symbol);
    if (declaration.is_visible || declaration.is_weak)
      publish(declaration.name, symbol, declaration.is_weak);
    const bool is_constant = declaration.storage == Storage::kConst;
    module_->variables_.push_back({std::string(declaration.name), *address, sized.size_bytes(),
                                   is_constant, declaration.is_managed});
    if (is_constant) {
      module_->program_->const_ranges.emplace_back(*address, *address + size);
      const_size_ += size;
    }
    return {};
  }

  void declare_function(Unit& unit, const FunctionSyntax& syntax) {
    Symbol symbol;
    symbol.kind = Symbol::Kind::kFunction;
    symbol.syntax = &syntax;
    if (!syntax.has_body) {
      // Kept apart, so that a definition elsewhere is found first.
      undefined_.try_emplace(syntax.name, symbol);
      return;
    }
    if (syntax.is_weak && globals_.contains(syntax.name)) return;
    auto& functions = module_->program_->functions;
    Function& function = *functions.emplace_back(std::make_unique<Function>());
    function.name = std::string(syntax.name);
    function.is_entry = syntax.is_entry;
    function.index = static_cast<uint32_t>(functions.size()) - 1;
    symbol.function = &function;
    unit.names.insert_or_assign(syntax.name, symbol);
    if (syntax.is_visible || syntax.is_weak) publish(syntax.name, symbol, syntax.is_weak);
    definitions_.push_back({&unit, &syntax, &function, SIZE_MAX});
  }

  Status initialize(Unit& unit) {
    // What nobody defines has a name all the same: calls to it are errors of their kernels.
    for (const auto& [name, symbol] : undefined_) globals_.try_emplace(name, symbol);
    for (const Declaration& each : unit.syntax.variables) {
      if (each.is_extern && each.storage != Storage::kShared && unit.find(each.name) == nullptr) {
        return invalid("variable " + std::string(each.name) + " is not defined");
      }
      if (each.initializer.empty()) continue;
      const auto own = unit.names.find(each.name);
      if (own == unit.names.end() || own->second.kind != Symbol::Kind::kVariable) continue;
      RGPU_RETURN_IF_ERROR(initialize_variable(unit, each, own->second.address));
    }
    return {};
  }

  Status initialize_variable(const Unit& unit, const Declaration& declaration, uint64_t address) {
    const uint32_t size = type_size(declaration.type);
    const uint64_t room = declaration.open_array ? declaration.initializer.size()
                                                 : declaration.element_count * declaration.vector;
    if (declaration.initializer.size() > room)
      return invalid("too many initializers for " + std::string(declaration.name));
    auto* to = reinterpret_cast<std::byte*>(address);
    for (const SyntaxOperand& each : declaration.initializer) {
      uint64_t value = each.integer;
      if (each.kind == SyntaxOperand::Kind::kName) {
        const Symbol* symbol = unit.find(each.name);
        if (symbol == nullptr ||
            (symbol->kind == Symbol::Kind::kFunction && symbol->function == nullptr)) {
          return invalid("initializer of " + std::string(declaration.name) + ": " +
                         std::string(each.name) + " is not defined");
        }
        value = symbol->kind == Symbol::Kind::kVariable   ? symbol->address
                : symbol->kind == Symbol::Kind::kFunction ? kCodeWindow | symbol->function->index
                                                          : symbol->index;
        value += static_cast<uint64_t>(each.offset);
        if (each.integer != 0) value = (value & each.integer) >> std::countr_zero(each.integer);
      } else if (each.kind == SyntaxOperand::Kind::kFloat) {
        if (declaration.type != Type::kF64)
          value = std::bit_cast<uint32_t>(static_cast<float>(std::bit_cast<double>(value)));
      } else if (each.kind != SyntaxOperand::Kind::kInteger) {
        return invalid("initializer of " + std::string(declaration.name) +
                       " is neither number nor name");
      }
      std::memcpy(to, &value, std::min(size, 8U));
      to += size;
    }
    return {};
  }

  Status add_kernels(Unit& unit) {
    for (Definition& definition : definitions_) {
      if (definition.unit != &unit || !definition.syntax->is_entry) continue;
      Kernel kernel;
      kernel.name = std::string(definition.syntax->name);
      uint64_t offset = 0;
      for (const Declaration& each : definition.syntax->parameters) {
        const uint64_t alignment = std::max(each.align_bytes(), 1U);
        offset = (offset + alignment - 1) / alignment * alignment;
        if (each.size_bytes() > kParametersSizeMax ||
            offset + each.size_bytes() > kParametersSizeMax) {
          return invalid("kernel " + kernel.name + " has more than 32764 bytes of parameters");
        }
        kernel.parameters.push_back(
            {static_cast<uint32_t>(offset), static_cast<uint32_t>(each.size_bytes())});
        offset += each.size_bytes();
      }
      kernel.parameter_size_bytes = static_cast<uint32_t>(offset);
      kernel.const_size_bytes = static_cast<uint32_t>(std::min<uint64_t>(const_size_, UINT32_MAX));
      const auto& most = definition.syntax->threads_max;
      if (most[0] != 0)
        kernel.threads_max =
            static_cast<uint32_t>(std::min<uint64_t>(uint64_t{most[0]} * most[1] * most[2], 1024));
      kernel.required_block = definition.syntax->threads_required;
      kernel.ptx_version = unit.syntax.version;
      kernel.binary_version = unit.syntax.target;
      kernel.function = definition.function;
      definition.kernel = module_->kernels_.size();
      module_->kernels_.push_back(std::move(kernel));
    }
    return {};
  }

  void lower_all() {
    for (const Definition& each : definitions_) {
      const Kernel* kernel = each.kernel == SIZE_MAX ? nullptr : &module_->kernels_[each.kernel];
      Lowering(*each.syntax, *each.unit, *module_->program_, kernel, *each.function).run();
    }
  }

  // All functions a kernel may run, and the local memory of the deepest chain of calls.
  struct Closure {
    std::vector<const Function*> functions;
    std::unordered_set<const Function*> seen;
    std::unordered_set<const Function*> open;
    bool indirect = false;
  };
  uint32_t visit(const Function& function, Closure& closure, int depth) {
    if (depth > 256 || !closure.open.insert(&function).second) return 0;  // Recursion.
    const bool is_new = closure.seen.insert(&function).second;
    if (is_new) closure.functions.push_back(&function);
    uint32_t below = is_new ? 0 : local_sizes_[&function];
    if (is_new) {
      for (const CallSite& site : function.calls) {
        if (site.builtin != Builtin::kNone) continue;
        if (site.callee == nullptr) closure.indirect = true;
        if (site.callee != nullptr)
          below = std::max(below, visit(*site.callee, closure, depth + 1));
      }
      local_sizes_[&function] = below;
    }
    closure.open.erase(&function);
    return below + (function.local_size_bytes + 15) / 16 * 16;
  }

  void finish(Kernel& kernel) {
    Closure closure;
    kernel.local_size_bytes = visit(*kernel.function, closure, 0);
    uint32_t registers = 16;
    for (const Function* each : closure.functions) {
      registers = std::max(registers, each->register_count);
      if (!each->error.empty() && kernel.error.empty()) {
        kernel.error =
            each == kernel.function ? each->error : "kernel " + kernel.name + ": " + each->error;
      }
    }
    kernel.register_count = registers;
    if (closure.indirect) {
      // Any function may be meant.
      for (const auto& each : module_->program_->functions) {
        if (!each->is_entry && closure.seen.insert(each.get()).second)
          closure.functions.push_back(each.get());
      }
    }
    place_shared(kernel, closure);
  }

  void place_shared(Kernel& kernel, const Closure& closure) {
    const std::vector<SharedVariable>& shared = module_->program_->shared;
    std::vector<bool> used(shared.size(), false);
    for (const Function* each : closure.functions) {
      for (const uint32_t index : each->shared_variables) used[index] = true;
    }
    kernel.shared_offsets.assign(shared.size(), 0);
    uint64_t size = 0;
    const auto align = [&size](uint64_t alignment) {
      size = (size + alignment - 1) / alignment * alignment;
    };
    for (size_t i = 0; i < shared.size(); ++i) {
      if (!used[i] || shared[i].is_dynamic) continue;
      align(shared[i].alignment);
      kernel.shared_offsets[i] = static_cast<uint32_t>(std::min<uint64_t>(size, UINT32_MAX));
      size += shared[i].size_bytes;
    }
    // What the launch sizes lies behind, all such variables at one place.
    for (size_t i = 0; i < shared.size(); ++i) {
      if (used[i] && shared[i].is_dynamic) align(std::max(shared[i].alignment, 16U));
    }
    for (size_t i = 0; i < shared.size(); ++i) {
      if (used[i] && shared[i].is_dynamic) kernel.shared_offsets[i] = static_cast<uint32_t>(size);
    }
    if (size > (1 << 20) && kernel.error.empty())
      kernel.error = "kernel " + kernel.name + ": more than 1 MiB of shared memory";
    kernel.static_shared_size_bytes = static_cast<uint32_t>(std::min<uint64_t>(size, UINT32_MAX));
  }

  const LoadOptions& options_;
  std::shared_ptr<Module> module_;
  std::deque<Unit> units_;
  std::unordered_map<std::string_view, Symbol> globals_;
  std::unordered_map<std::string_view, Symbol> undefined_;
  std::unordered_set<std::string_view> weak_;
  std::vector<Definition> definitions_;
  std::unordered_map<const Function*, uint32_t> local_sizes_;
  uint64_t const_size_ = 0;
};

Result<std::shared_ptr<Module>> Module::load(std::string_view text, const LoadOptions& options) {
  return load(std::span(&text, 1), options);
}

Result<std::shared_ptr<Module>> Module::load(std::span<const std::string_view> texts,
                                             const LoadOptions& options) {
  return ModuleBuilder(options).build(texts);
}

}  // namespace rgpu::server::ptx
