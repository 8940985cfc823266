#include "tutti/nn/parameter.h"

#include <atomic>
#include <mutex>
#include <utility>

#include "tutti/autograd/tape.h"
#include "tutti/dist/dtensor.h"
#include "tutti/ops/cast.h"
#include "tutti/ops/copy.h"
#include "tutti/ops/creation.h"
#include "tutti/ops/quantized/blocks.h"
#include "tutti/ops/random.h"
#include "tutti/ops/random_key.h"
#include "tutti/tensor/lent_memory.h"
#include "tutti/tensor/tensor_slot.h"

namespace tutti::nn {
namespace {

// Ops of a parameter's own upkeep run at once, also while the code that reads it is traced or recorded, and what they
// read is no read of that code.
class Upkeep {
 public:
  Upkeep()
      : stages_(0, mask_of(StagePlace::capture) | mask_of(StagePlace::autograd)),
        reads_(SlotReads::set_current(nullptr)) {}
  ~Upkeep() { SlotReads::set_current(reads_); }
  Upkeep(const Upkeep&) = delete;
  Upkeep& operator=(const Upkeep&) = delete;

 private:
  StageScope stages_;
  SlotReads* const reads_;
};

[[noreturn]] void throw_undefined(const char* what) {
  throw UsageError(fmt::format("this {} is undefined: its module was built without it", what));
}

}  // namespace

// ---- Parameter ------------------------------------------------------------------------------------------------------

struct Parameter::State {
  // The tensors as slots that compiled functions read.
  enum class Kind : uint8_t { use, master, stored, blocks };
  struct Face final : TensorSlot {
    Face(State& owner, Kind kind) : owner(owner), kind(kind) {}
    Tensor held() const override {
      if (kind == Kind::use) return owner.read_leaf();
      if (kind == Kind::blocks) return owner.existing_blocks();
      return kind == Kind::master ? owner.existing_master() : owner.stored();
    }
    Tensor known() const override {
      if (kind == Kind::blocks) return owner.blocks;
      if (owner.blocks.defined()) return {};
      if (kind == Kind::use) owner.check_has_values();
      return kind == Kind::use && owner.is_apart && lender_of(owner.copy) != nullptr ? owner.copy : held();
    }
    Tensor copied_from() const override {
      return kind != Kind::use || !owner.is_copied() || owner.is_apart ? Tensor() : owner.existing_master();
    }
    std::string description() const override { return fmt::format("parameter '{}'", owner.name); }
    State& owner;
    const Kind kind;
  };

  State(std::string name, const Extents& sizes, const Init& init, DType dtype)
      : name(std::move(name)),
        sizes(sizes),
        init(init),
        own_dtype(dtype),
        dtype(dtype),
        use_dtype(dtype),
        use_face(*this, Kind::use),
        master_face(*this, Kind::master),
        stored_face(*this, Kind::stored),
        blocks_face(*this, Kind::blocks) {}

  bool is_copied() const { return use_dtype != dtype; }
  const Tensor& existing_master() const {
    TUTTI_CHECK(!blocks.defined(),
                "parameter '{}' {} is held as {} blocks, which are no numbers; dequantize(parameter.blocks(), "
                "parameter.block_format()) gives them",
                name, sizes, name_of(format));
    TUTTI_CHECK(master.defined() || released.empty(), "parameter '{}' {} has no values: {}", name, sizes, released);
    TUTTI_CHECK(master.defined(),
                "parameter '{}' {} has no values yet; call nn::initialize(module), load the module, or materialize() "
                "the parameter",
                name, sizes);
    return master;
  }
  const Tensor& existing_blocks() const {
    TUTTI_CHECK(blocks.defined(), "parameter '{}' {} is not held as quantized blocks; use() gives its numbers", name,
                sizes);
    return blocks;
  }
  // Memory that is divided over ranks is there before the values are.
  void check_has_values() const {
    if (blocks.defined()) return;
    existing_master();
    if (unwritten_version < 0) [[likely]]
      return;
    TUTTI_CHECK(static_cast<int64_t>(stored().storage()->version()) != unwritten_version,
                "parameter '{}' {} is sharded, and has no values yet; call nn::initialize(model), or load weights, on "
                "all ranks before it is read",
                full_name, sizes);
  }
  const Tensor& read_leaf() {
    existing_master();
    check_has_values();
    if (before_read) {
      const Upkeep now;
      before_read();
    }
    return current_leaf();
  }
  Tensor stored() const {
    const Tensor& values = existing_master();
    return dist::is_dtensor(values) ? dist::part_of(values, "parameter").local : values;
  }
  const Tensor& current_leaf() {
    existing_master();
    if (is_apart) return copy;
    if (!is_copied()) return master;
    if (copied_version.load(std::memory_order_acquire) == master.version()) return copy;
    const std::lock_guard lock(mutex);
    const int64_t version = master.version();
    if (copied_version.load(std::memory_order_relaxed) == version) return copy;
    const Upkeep now;
    if (!copy.defined()) {
      MemoryCategoryScope category(MemoryCategory::parameters);
      // The copy of a master without memory of its own, distributed or fake, is as it is.
      copy = master.storage()->has_memory() ? Tensor::empty(sizes, use_dtype) : cast(master, use_dtype);
      tutti::requires_grad_(copy, requires_grad);
    }
    copy_(copy, master);
    copied_version.store(version, std::memory_order_release);
    return copy;
  }
  void check_not_frozen() const {
    TUTTI_CHECK(!is_frozen,
                "parameter '{}' is frozen to values that are not its own, so it is not trained; load the model without "
                "freezing it",
                name);
  }
  bool is_divided() const {
    const Tensor& held = blocks.defined() ? blocks : master;
    return is_apart || (held.defined() && dist::is_dtensor(held));
  }
  void check_freezes_to(const Tensor& values) const {
    TUTTI_CHECK(!is_divided() || (is_frozen && dist::is_dtensor(values)),
                "parameter '{}' is divided over ranks, and {} is whole; freeze the parameters of the model first, and "
                "divide it then",
                name, describe(values));
  }
  void check_not_released() const {
    TUTTI_CHECK(released.empty(), "parameter '{}' {} cannot get values: {}", name, sizes, released);
  }
  void thaw() {
    check_not_released();
    TUTTI_CHECK(!is_frozen || !is_divided(),
                "parameter '{}' is frozen to parts of values that are not its own; build the model anew to load others",
                name);
    if (!std::exchange(is_frozen, false)) return;
    master = copy = blocks = Tensor();
    dtype = own_dtype;
    copied_version = -1;
    requires_grad = required_grad;
  }
  void begin_frozen(DType of_values) {
    check_not_released();
    if (!is_frozen) required_grad = requires_grad;
    dtype = of_values;
    master = copy = blocks = Tensor();
    copied_version = -1;
    is_frozen = true, requires_grad = false;
  }
  // Makes autograd see what `requires_grad` and `use_dtype` say.
  void mark_leaf() {
    if (master.defined()) tutti::requires_grad_(master, requires_grad && !is_copied() && !is_apart);
    if (copy.defined()) tutti::requires_grad_(copy, requires_grad);
  }

  const std::string name;
  const Extents sizes;
  const Init init;
  const DType own_dtype;
  DType dtype;  // of the master: that of the file where the parameter is frozen
  DType use_dtype;
  bool requires_grad = true;
  Tensor master;
  Tensor copy;    // in use_dtype, when that is not the dtype of the master, or the master is stored apart
  Tensor blocks;  // quantized values, in the place of the master
  BlockFormat format = BlockFormat::f32;
  bool can_hold_blocks = false;
  bool is_frozen = false;
  bool required_grad = true;  // before it was frozen
  std::string released;       // why it has no values any more
  bool is_apart = false;
  std::string full_name;           // of a parameter that is stored apart
  int64_t unwritten_version = -1;  // of what this rank stores of a master without values; -1: it has some
  std::function<void()> before_read, before_write;
  std::atomic<int64_t> copied_version{-1};  // of the master, when it was last copied
  std::mutex mutex;
  Face use_face, master_face, stored_face, blocks_face;
};

Parameter::Parameter(std::string name, const Extents& sizes, const Init& init, DType dtype) {
  TUTTI_CHECK(is_floating(dtype), "parameter '{}': a parameter is trained, so it cannot hold {}; use a buffer", name,
              name_of(dtype));
  for (size_t d = 0; d < sizes.size(); ++d)
    TUTTI_CHECK(sizes[d] >= 0, "parameter '{}': dim {} of {} has a negative size", name, d, sizes);
  state_ = std::make_shared<State>(std::move(name), sizes, init, dtype);
}

Parameter::State& Parameter::state() const {
  if (state_ == nullptr) throw_undefined("parameter");
  return *state_;
}

Tensor Parameter::use() const { return read_slot(std::shared_ptr<const TensorSlot>(state_, &state().use_face)); }
Tensor Parameter::leaf() const { return state().current_leaf(); }
Tensor Parameter::master() const { return read_slot(std::shared_ptr<const TensorSlot>(state_, &state().master_face)); }
Tensor Parameter::stored() const { return read_slot(std::shared_ptr<const TensorSlot>(state_, &state().stored_face)); }
void Parameter::will_change() const {
  state().unwritten_version = -1;
  if (state().before_write) state().before_write();
}
void Parameter::check_has_values() const { state().check_has_values(); }
void Parameter::changed() const { state().existing_master().storage()->bump_version(); }

Tensor Parameter::grad() const { return grad_of(leaf()); }
void Parameter::set_grad(Tensor grad) const {
  TUTTI_CHECK(!grad.defined() || (grad.extents() == sizes() && is_floating(grad.dtype())),
              "parameter '{}' is {}; its gradient cannot be {}", name(), sizes(), describe(grad));
  tutti::set_grad(leaf(), std::move(grad));
}
bool Parameter::requires_grad() const { return state().requires_grad; }
void Parameter::requires_grad_(bool on) const {
  TUTTI_CHECK(!on || !state().is_frozen,
              "parameter '{}' is frozen: its values are not its own; load the model, or assign() values, to train it",
              name());
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
  TUTTI_CHECK(!s.is_apart,
              "parameter '{}' is stored apart from the copy that forward reads, in {}; choose the dtype of use before "
              "fully_shard()",
              s.name, name_of(s.use_dtype));
  s.use_dtype = dtype;
  s.copy = Tensor();
  s.copied_version = -1;
  if (s.master.defined()) tutti::set_grad(s.master, {});
  s.mark_leaf();
}

bool Parameter::is_materialized() const { return state().master.defined() || holds_blocks(); }

void Parameter::materialize() const {
  State& s = state();
  if (is_materialized()) return;
  s.check_not_released();
  MemoryCategoryScope category(MemoryCategory::parameters);
  s.master = Tensor::empty(s.sizes, s.dtype);
  s.mark_leaf();
}

void Parameter::initialize(std::string_view full_name) const {
  state().thaw();
  materialize();
  will_change();
  const State& s = state();
  const Upkeep now;
  // Each rank draws its part of a distributed master.
  const auto draw = [&](const std::function<Tensor(const Shape&, const RandomKey&)>& function) {
    return dist::is_dtensor(s.master) ? dist::drawn_part(s.master, random_key(full_name), function)
                                      : function(s.master.sizes(), random_key(full_name));
  };
  const Tensor values = [&] {
    switch (s.init.kind) {
      case Init::Kind::zeros:
        return tutti::zeros({}, s.dtype);
      case Init::Kind::ones:
        return tutti::ones({}, s.dtype);
      case Init::Kind::normal:
        return draw(
            [&](const Shape& sizes, const RandomKey& key) { return normal(sizes, key, 0.0, s.init.scale, s.dtype); });
      case Init::Kind::uniform:
        return draw([&](const Shape& sizes, const RandomKey& key) {
          return uniform(sizes, key, -s.init.scale, s.init.scale, s.dtype);
        });
    }
    throw InternalError("parameter: an unknown kind of initial values");
  }();
  copy_(s.stored(), values);
}

void Parameter::assign(const Tensor& values) const {
  TUTTI_CHECK(values.extents() == sizes(), "parameter '{}' is {}; it cannot take {}", name(), sizes(),
              describe(values));
  state().thaw();
  materialize();
  will_change();
  const Upkeep now;
  const Tensor& master = state().master;
  if (!dist::is_dtensor(master) || dist::is_dtensor(values)) {
    copy_(master, values);
    return;
  }
  // Every rank has all values, and takes those that it stores.
  const dist::DTensorSpec& spec = dist::spec_of(master);
  const Tensor placed = dist::distribute_tensor(autograd::detached(values), dist::mesh_of(master), spec.placements(),
                                                {.layout = {spec.order(), spec.cut()}, .src_data_rank = -1});
  copy_(state().stored(), dist::part_of(placed, "parameter").local);
}

void Parameter::freeze(const Tensor& values) const {
  State& s = state();
  TUTTI_CHECK(values.defined() && values.extents() == s.sizes && is_floating(values.dtype()),
              "parameter '{}' is {}; it cannot be frozen to {}", s.name, s.sizes, describe(values));
  s.check_freezes_to(values);
  s.begin_frozen(values.dtype());
  s.master = autograd::detached(values);
  s.mark_leaf();
}

void Parameter::freeze(const Tensor& blocks, BlockFormat format) const {
  State& s = state();
  TUTTI_CHECK(
      s.can_hold_blocks,
      "parameter '{}' {} cannot be held as {} blocks: only weights of Linear, Embedding and experts can; assign "
      "dequantize(blocks, format) to it",
      s.name, s.sizes, name_of(format));
  quantized::check_blocks("Parameter::freeze", blocks, format, s.sizes.ndim());
  Shape sizes = blocks.sizes();
  sizes.back() = quantized::elements_of_row(sizes.back(), format);
  TUTTI_CHECK(sizes == to_shape(s.sizes), "parameter '{}' is {}; it cannot be frozen to {} blocks of {}", s.name,
              s.sizes, name_of(format), sizes);
  s.check_freezes_to(blocks);
  s.begin_frozen(DType::f32);
  s.blocks = autograd::detached(blocks);
  s.format = format;
}

bool Parameter::holds_blocks() const { return state().blocks.defined(); }
Tensor Parameter::blocks() const { return read_slot(std::shared_ptr<const TensorSlot>(state_, &state().blocks_face)); }
BlockFormat Parameter::block_format() const { return state().existing_blocks(), state().format; }
void Parameter::allow_blocks() const { state().can_hold_blocks = true; }
bool Parameter::can_hold_blocks() const { return state().can_hold_blocks; }
bool Parameter::is_frozen() const { return state().is_frozen; }

void Parameter::release(std::string reason) const {
  State& s = state();
  TUTTI_CHECK(!s.is_divided(), "parameter '{}' is divided over ranks; it cannot give up its values", s.name);
  s.begin_frozen(s.own_dtype);
  s.released = std::move(reason);
}

void Parameter::set_master(Tensor master) const {
  State& s = state();
  s.check_not_frozen();
  TUTTI_CHECK(master.defined() && master.extents() == s.sizes && master.dtype() == s.dtype,
              "parameter '{}' is {} {}; its values cannot be {}", s.name, s.sizes, name_of(s.dtype), describe(master));
  s.master = autograd::detached(master);
  s.is_apart = false;
  s.unwritten_version = -1;
  s.before_read = s.before_write = nullptr;
  s.copy = Tensor();
  s.copied_version = -1;
  s.mark_leaf();
}

void Parameter::set_stored_apart(StoredApart stored) const {
  State& s = state();
  s.check_not_frozen();
  const Tensor &master = stored.master, &copy = stored.copy;
  TUTTI_CHECK(master.defined() && dist::is_dtensor(master) && master.extents() == s.sizes && master.dtype() == s.dtype,
              "parameter '{}' is {} {}; its values cannot be {}, expected a distributed tensor of these sizes", s.name,
              s.sizes, name_of(s.dtype), describe(master));
  TUTTI_CHECK(copy.defined() && copy.extents() == s.sizes && copy.dtype() == s.use_dtype,
              "parameter '{}' is used as {} {}; its copy cannot be {}", s.name, s.sizes, name_of(s.use_dtype),
              describe(copy));
  s.full_name = std::move(stored.full_name);
  s.master = autograd::detached(master);
  s.copy = copy;
  s.is_apart = true;
  s.unwritten_version = stored.has_values ? -1 : static_cast<int64_t>(s.stored().storage()->version());
  s.before_read = std::move(stored.before_read);
  s.before_write = std::move(stored.before_write);
  s.mark_leaf();
}

// ---- Buffer ---------------------------------------------------------------------------------------------------------

struct Buffer::State final : TensorSlot {
  State(std::string name, Tensor value, std::function<Tensor()> compute)
      : name(std::move(name)), value(std::move(value)), compute(std::move(compute)) {}
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
              "buffer '{}' cannot hold {}, which exists only while compile() traces the function; write into its "
              "tensor (copy_), or return the value and set it after the call",
              s.name, describe(value));
  const std::lock_guard lock(s.mutex);
  s.value = std::move(value);
}

const std::string& Buffer::name() const { return state().name; }

}  // namespace tutti::nn
