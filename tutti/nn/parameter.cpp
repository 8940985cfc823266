#include "tutti/nn/parameter.h"

#include <atomic>
#include <mutex>
#include <utility>

#include "tutti/autograd/tape.h"
#include "tutti/ops/cast.h"
#include "tutti/ops/copy.h"
#include "tutti/ops/creation.h"
#include "tutti/ops/random.h"
#include "tutti/ops/random_key.h"
#include "tutti/tensor/tensor_slot.h"

namespace tutti::nn {
namespace {

// Ops of a parameter's own upkeep run at once, also while the code that reads it is traced or recorded, and what they read is no
// read of that code.
class Upkeep {
 public:
  Upkeep() : stages_(0, mask_of(StagePlace::capture) | mask_of(StagePlace::autograd)), reads_(SlotReads::set_current(nullptr)) {}
  ~Upkeep() { SlotReads::set_current(reads_); }
  Upkeep(const Upkeep&) = delete;
  Upkeep& operator=(const Upkeep&) = delete;

 private:
  StageScope stages_;
  SlotReads* const reads_;
};

[[noreturn]] void throw_undefined(const char* what) { throw UsageError(fmt::format("this {} is undefined: its module was built without it", what)); }

}  // namespace

// ---- Parameter ------------------------------------------------------------------------------------------------------

struct Parameter::State {
  // The two tensors as slots that compiled functions read.
  struct Face final : TensorSlot {
    Face(State& owner, bool is_master) : owner(owner), is_master(is_master) {}
    Tensor held() const override { return is_master ? owner.existing_master() : owner.current_leaf(); }
    Tensor copied_from() const override { return is_master || !owner.is_copied() ? Tensor() : owner.existing_master(); }
    std::string description() const override { return fmt::format("parameter '{}'", owner.name); }
    State& owner;
    const bool is_master;
  };

  State(std::string name, const Extents& sizes, const Init& init, DType dtype)
      : name(std::move(name)), sizes(sizes), init(init), dtype(dtype), use_dtype(dtype), use_face(*this, false), master_face(*this, true) {}

  bool is_copied() const { return use_dtype != dtype; }
  const Tensor& existing_master() const {
    TUTTI_CHECK(master.defined(), "parameter '{}' {} has no values yet; call nn::initialize(module), load the module, or materialize() the parameter", name, sizes);
    return master;
  }
  const Tensor& current_leaf() {
    existing_master();
    if (!is_copied()) return master;
    if (copied_version.load(std::memory_order_acquire) == master.version()) return copy;
    const std::lock_guard lock(mutex);
    const int64_t version = master.version();
    if (copied_version.load(std::memory_order_relaxed) == version) return copy;
    const Upkeep now;
    if (!copy.defined()) {
      MemoryCategoryScope category(MemoryCategory::parameters);
      // A distributed master has a distributed copy.
      copy = (master.stages() & mask_of(StagePlace::sharding)) != 0 ? cast(master, use_dtype) : Tensor::empty(sizes, use_dtype);
      tutti::requires_grad_(copy, requires_grad);
    }
    copy_(copy, master);
    copied_version.store(version, std::memory_order_release);
    return copy;
  }
  // Makes autograd see what `requires_grad` and `use_dtype` say.
  void mark_leaf() {
    if (master.defined()) tutti::requires_grad_(master, requires_grad && !is_copied());
    if (copy.defined()) tutti::requires_grad_(copy, requires_grad);
  }

  const std::string name;
  const Extents sizes;
  const Init init;
  const DType dtype;
  DType use_dtype;
  bool requires_grad = true;
  Tensor master;
  Tensor copy;  // in use_dtype, when that is not the dtype of the master
  std::atomic<int64_t> copied_version{-1};  // of the master, when it was last copied
  std::mutex mutex;
  Face use_face, master_face;
};

Parameter::Parameter(std::string name, const Extents& sizes, const Init& init, DType dtype) {
  TUTTI_CHECK(is_floating(dtype), "parameter '{}': a parameter is trained, so it cannot hold {}; use a buffer", name, name_of(dtype));
  for (size_t d = 0; d < sizes.size(); ++d) TUTTI_CHECK(sizes[d] >= 0, "parameter '{}': dim {} of {} has a negative size", name, d, sizes);
  state_ = std::make_shared<State>(std::move(name), sizes, init, dtype);
}

Parameter::State& Parameter::state() const {
  if (state_ == nullptr) throw_undefined("parameter");
  return *state_;
}

Tensor Parameter::use() const { return read_slot(std::shared_ptr<const TensorSlot>(state_, &state().use_face)); }
Tensor Parameter::leaf() const { return state().current_leaf(); }
Tensor Parameter::master() const { return read_slot(std::shared_ptr<const TensorSlot>(state_, &state().master_face)); }
void Parameter::changed() const { state().existing_master().storage()->bump_version(); }

Tensor Parameter::grad() const { return grad_of(leaf()); }
void Parameter::set_grad(Tensor grad) const {
  TUTTI_CHECK(!grad.defined() || (grad.extents() == sizes() && is_floating(grad.dtype())), "parameter '{}' is {}; its gradient cannot be {}", name(), sizes(), describe(grad));
  tutti::set_grad(leaf(), std::move(grad));
}
bool Parameter::requires_grad() const { return state().requires_grad; }
void Parameter::requires_grad_(bool on) const {
  state().requires_grad = on;
  state().mark_leaf();
}

const std::string& Parameter::name() const { return state().name; }
const Extents& Parameter::sizes() const { return state().sizes; }
DType Parameter::dtype() const { return state().dtype; }
DType Parameter::use_dtype() const { return state().use_dtype; }

void Parameter::set_use_dtype(DType dtype) const {
  State& s = state();
  TUTTI_CHECK(is_floating(dtype), "parameter '{}' cannot be used as {}; expected a float", s.name, name_of(dtype));
  if (s.use_dtype == dtype) return;
  s.use_dtype = dtype;
  s.copy = Tensor();
  s.copied_version = -1;
  if (s.master.defined()) tutti::set_grad(s.master, {});
  s.mark_leaf();
}

bool Parameter::is_materialized() const { return state().master.defined(); }

void Parameter::materialize() const {
  State& s = state();
  if (s.master.defined()) return;
  MemoryCategoryScope category(MemoryCategory::parameters);
  s.master = Tensor::empty(s.sizes, s.dtype);
  s.mark_leaf();
}

void Parameter::initialize(std::string_view full_name) const {
  materialize();
  const State& s = state();
  const Upkeep now;
  switch (s.init.kind) {
    case Init::Kind::zeros: copy_(s.master, tutti::zeros({}, s.dtype)); break;
    case Init::Kind::ones: copy_(s.master, tutti::ones({}, s.dtype)); break;
    case Init::Kind::normal: copy_(s.master, normal(s.master.sizes(), random_key(full_name), 0.0, s.init.scale, s.dtype)); break;
    case Init::Kind::uniform: copy_(s.master, uniform(s.master.sizes(), random_key(full_name), -s.init.scale, s.init.scale, s.dtype)); break;
  }
}

void Parameter::assign(const Tensor& values) const {
  TUTTI_CHECK(values.extents() == sizes(), "parameter '{}' is {}; it cannot take {}", name(), sizes(), describe(values));
  materialize();
  const Upkeep now;
  copy_(state().master, values);
}

void Parameter::set_master(Tensor master) const {
  State& s = state();
  TUTTI_CHECK(master.defined() && master.extents() == s.sizes && master.dtype() == s.dtype, "parameter '{}' is {} {}; its values cannot be {}", s.name, s.sizes, name_of(s.dtype), describe(master));
  s.master = autograd::detached(master);
  s.copy = Tensor();
  s.copied_version = -1;
  s.mark_leaf();
}

// ---- Buffer ---------------------------------------------------------------------------------------------------------

struct Buffer::State final : TensorSlot {
  State(std::string name, Tensor value, std::function<Tensor()> compute) : name(std::move(name)), value(std::move(value)), compute(std::move(compute)) {}
  Tensor held() const override {
    const std::lock_guard lock(mutex);
    if (!value.defined() && compute) {
      const Upkeep now;
      value = compute();
      TUTTI_CHECK(value.defined(), "buffer '{}': its function returned an undefined tensor", name);
    }
    return value;
  }
  std::string description() const override { return fmt::format("buffer '{}'", name); }

  const std::string name;
  mutable std::mutex mutex;
  mutable Tensor value;
  std::function<Tensor()> compute;
};

Buffer::Buffer(std::string name, Tensor value) {
  TUTTI_CHECK(value.defined(), "buffer '{}' needs a value, or a function that computes it", name);
  state_ = std::make_shared<State>(std::move(name), std::move(value), nullptr);
}

Buffer::Buffer(std::string name, std::function<Tensor()> compute) {
  TUTTI_CHECK(compute != nullptr, "buffer '{}' needs a value, or a function that computes it", name);
  state_ = std::make_shared<State>(std::move(name), Tensor(), std::move(compute));
}

Buffer::State& Buffer::state() const {
  if (state_ == nullptr) throw_undefined("buffer");
  return *state_;
}

Tensor Buffer::use() const { return read_slot(std::shared_ptr<const TensorSlot>(state_, &state())); }

void Buffer::set(Tensor value) const {
  State& s = state();
  TUTTI_CHECK(value.defined(), "buffer '{}' cannot hold an undefined tensor", s.name);
  TUTTI_CHECK(value.storage()->state() != StorageState::traced,
              "buffer '{}' cannot hold {}, which exists only while compile() traces the function; write into its tensor (copy_), or return the value and set it after the call",
              s.name, describe(value));
  const std::lock_guard lock(s.mutex);
  s.value = std::move(value);
}

const std::string& Buffer::name() const { return state().name; }

}  // namespace tutti::nn
