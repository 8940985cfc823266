#include "tests/dtensor/support/mesh_programs.h"

#include <algorithm>
#include <random>

#include "tests/dtensor/support/mesh_ranks.h"
#include "tutti/codegen/gemm/contraction_tree.h"
#include "tutti/core/error.h"
#include "tutti/graph/compile.h"
#include "tutti/ops/binary.h"
#include "tutti/ops/cast.h"
#include "tutti/ops/cat.h"
#include "tutti/ops/comparison.h"
#include "tutti/ops/copy.h"
#include "tutti/ops/diagonal.h"
#include "tutti/ops/expand.h"
#include "tutti/ops/extremes.h"
#include "tutti/ops/flip.h"
#include "tutti/ops/gather.h"
#include "tutti/ops/inplace.h"
#include "tutti/ops/matmul.h"
#include "tutti/ops/pad.h"
#include "tutti/ops/permute.h"
#include "tutti/ops/reduction.h"
#include "tutti/ops/reshape.h"
#include "tutti/ops/scan.h"
#include "tutti/ops/slice.h"
#include "tutti/ops/softmax.h"
#include "tutti/ops/sort.h"
#include "tutti/ops/squeeze.h"
#include "tutti/ops/statistics.h"
#include "tutti/ops/unfold.h"
#include "tutti/ops/where.h"

namespace tutti::dist {
namespace {

// What all ranks draw alike.
class Draws {
 public:
  explicit Draws(uint64_t seed) : random_(seed) {}
  int64_t below(int64_t n) { return n <= 0 ? 0 : static_cast<int64_t>(random_() % static_cast<uint64_t>(n)); }
  bool one_in(int64_t n) { return below(n) == 0; }
  template <class T>
  const T& of(const std::vector<T>& list) {
    return list[static_cast<size_t>(below(std::ssize(list)))];
  }
  std::mt19937_64& random() { return random_; }

 private:
  std::mt19937_64 random_;
};

// Functions that all ranks of all programs share, compiled as they come.
struct SharedFunction {
  const char* name;
  Tensor (*eager)(const Tensor&);
  const Compiled<Tensor (*)(const Tensor&)>& compiled;
};

Tensor scaled_twice(const Tensor& x) { return mul(add(mul(x, 0.5), 1.0), x); }
Tensor softmax_of_rows(const Tensor& x) { return softmax(add(x, x), -1); }
Tensor written_inside(const Tensor& x) {
  const Tensor y = mul(x, 2.0);
  add_(select(y, 0, 0), 1.0);
  return y;
}
Tensor mean_square(const Tensor& x) { return mean(mul(x, x)); }

const std::vector<SharedFunction>& shared_functions() {
  const auto make = [](const char* name, Tensor (*fn)(const Tensor&)) {
    const CompileOptions options{.name = name, .on_limit = CompileOptions::OnLimit::forget};
    return SharedFunction{name, fn, *new Compiled<Tensor (*)(const Tensor&)>(fn, options)};
  };
  // They live as long as the process.
  static const std::vector<SharedFunction>& all =
      *new std::vector<SharedFunction>{make("scaled_twice", scaled_twice), make("softmax_of_rows", softmax_of_rows),
                                       make("written_inside", written_inside), make("mean_square", mean_square)};
  return all;
}

struct Call {
  enum class Kind : uint8_t { pure, view, write };
  Kind kind = Kind::pure;
  std::string name;
  std::function<Tensor(const Tensor& x, const Tensor& y)> run;  // y: a second operand, undefined where there is none
  std::function<Tensor(const Tensor& x, const Tensor& y)> on_mesh = nullptr;  // where that is another function
  int second = -1;
  bool writes_inside = false;
};

struct Pair {
  Tensor plain, spread;
  // A view whose elements had to move: it cannot be written, nor read once the tensor that it shows has been written.
  // The plain one shares its memory.
  bool is_copy = false;
  uint32_t version = 0;  // of the plain one when the view was taken
  bool is_stale() const { return is_copy && plain.version() != version; }
};

bool is_refused_as_old(const Tensor& copy) {
  return message_of([&] { to_local(copy); }).find("has been written since") != std::string::npos;
}

// What a write may be refused for that plain tensors take.
bool is_known_refusal(const std::string& said) {
  static const std::vector<const char*> known = {"no row of its sharding rule", "overlap", "are the same memory"};
  return std::any_of(known.begin(), known.end(),
                     [&](const char* reason) { return said.find(reason) != std::string::npos; });
}

// Part of a program on one rank.
class Program {
 public:
  Program(const Mesh& mesh, uint64_t seed, ProgramCounts& counts)
      : mesh_(mesh), draws_(seed), seed_(seed), counts_(counts) {}

  void run() {
    const int64_t tensors = 2 + draws_.below(2), calls = 4 + draws_.below(8);
    for (int64_t i = 0; i < tensors; ++i) add_tensor();
    check("the start");
    for (int64_t i = 0; i < calls; ++i) step();
  }

 private:
  using Kind = Call::Kind;
  static constexpr size_t kMostAlive = 7;

  Extents any_sizes() {
    static const std::vector<int64_t> sizes = {0, 1, 1, 2, 2, 3, 3, 4, 5, 6, 7};
    Extents e(static_cast<size_t>(draws_.below(5) == 0 ? draws_.below(2) : 1 + draws_.below(4)), 1);
    for (int64_t& n : e) n = draws_.of(sizes);
    return e;
  }

  Placements any_placements(const Extents& sizes) {
    Placements placements;
    for (int axis = 0; axis < mesh_->ndim(); ++axis) {
      const int64_t d = draws_.below(sizes.ndim() + 2);
      placements.push_back(d < sizes.ndim() ? shard(static_cast<int>(d)) : replicate());
    }
    return placements;
  }

  LayoutOptions any_layout() { return {.order = {}, .cut = draws_.one_in(3) ? Cut::chunk : Cut::halving}; }

  void add_tensor() {
    static const std::vector<DType> dtypes = {DType::f32,  DType::f32, DType::f32, DType::f32,
                                              DType::bf16, DType::f64, DType::i64};
    const Extents sizes = any_sizes();
    const DType dtype = draws_.of(dtypes);
    const Tensor plain = dtype == DType::i64 ? cast(sample(sizes, DType::f32, draws_.random()()), dtype)
                                             : sample(sizes, dtype, draws_.random()());
    const Placements placements = any_placements(sizes);
    const LayoutOptions layout = any_layout();
    Tensor spread = distribute_tensor(plain, mesh_, placements, {.layout = layout, .src_data_rank = -1});
    const int64_t form = draws_.below(6);
    if (form == 0) spread = of_strided_parts(spread, layout);
    if (form == 1 && is_floating(dtype)) spread = redistribute(spread, with_terms(placements), {.layout = layout});
    alive_.push_back({plain, spread});
    text_ += fmt::format("  t{} = {}\n", alive_.size() - 1, spec_of(alive_.back().spread).to_string());
  }

  // The same from parts that lie otherwise than their whole, on some ranks or on all.
  Tensor of_strided_parts(const Tensor& t, const LayoutOptions& layout) {
    const int64_t ranks = draws_.below(1 << 7);
    Tensor part = clone(to_local(t));
    if (part.ndim() >= 2 && (ranks >> mesh_->rank() & 1) != 0) part = transpose(clone(transpose(part, 0, 1)), 0, 1);
    return from_local(part, mesh_, spec_of(t).placements(), {.layout = layout, .sizes = spec_of(t).sizes()});
  }

  // Terms of a sum along some mesh dims that shard nothing.
  Placements with_terms(Placements placements) {
    for (Placement& p : placements) {
      if (p.is_replicate() && draws_.one_in(2)) p = partial();
    }
    return placements;
  }

  int64_t any_dim(const Tensor& x) { return draws_.below(x.ndim()); }
  Dims any_dims(const Tensor& x) {
    Dims dims;
    for (int d = 0; d < x.ndim(); ++d) {
      if (draws_.one_in(2)) dims.push_back(d);
    }
    return dims;
  }

  // Sizes of equally many elements.
  Shape other_sizes(const Tensor& x) {
    const Extents sizes = x.extents();
    Shape shape;
    for (size_t d = 0; d < sizes.size(); ++d) {
      // As many dims more as the rest of the sizes leaves room for.
      const bool has_room = shape.ndim() + static_cast<int>(sizes.size() - d) < kMaxDims;
      if (!shape.empty() && draws_.one_in(2)) {
        shape[shape.size() - 1] = shape[shape.size() - 1].value() * sizes[d];
        continue;
      }
      if (has_room && sizes[d] > 1 && sizes[d] % 2 == 0 && draws_.one_in(2))
        shape.push_back(2), shape.push_back(sizes[d] / 2);
      else shape.push_back(sizes[d]);
      if (draws_.one_in(6) && shape.ndim() + static_cast<int>(sizes.size() - d) <= kMaxDims) shape.push_back(1);
    }
    return shape;
  }

  Call any_view(const Tensor& x) {
    const int64_t d = any_dim(x), n = x.ndim() == 0 ? 0 : x.extent(d), begin = draws_.below(n + 1),
                  length = draws_.below(n - begin + 1);
    const auto view_call = [](std::string name, std::function<Tensor(const Tensor&)> fn) {
      return Call{Kind::view, std::move(name), [fn = std::move(fn)](const Tensor& t, const Tensor&) { return fn(t); }};
    };
    if (x.ndim() > 0) {
      switch (draws_.below(9)) {
        case 0:
          return view_call(fmt::format("narrow(dim {}, {}, {})", d, begin, length),
                           [=](const Tensor& t) { return narrow(t, d, begin, length); });
        case 1: {
          const int64_t step = 1 + draws_.below(3);
          return view_call(fmt::format("slice(dim {}, {}, {}, {})", d, begin, n, step),
                           [=](const Tensor& t) { return slice(t, d, begin, n, step); });
        }
        case 2:
          if (n == 0) break;
          return view_call(fmt::format("select(dim {}, {})", d, begin % n),
                           [=](const Tensor& t) { return select(t, d, begin % n); });
        case 3: {
          const int64_t e = any_dim(x);
          return view_call(fmt::format("transpose({}, {})", d, e), [=](const Tensor& t) { return transpose(t, d, e); });
        }
        case 4: {
          const Shape shape = other_sizes(x);
          return view_call(fmt::format("reshape({})", shape), [=](const Tensor& t) { return reshape(t, shape); });
        }
        case 5: {
          if (n == 0) break;
          const int64_t size = 1 + draws_.below(n), step = 1 + draws_.below(2);
          return view_call(fmt::format("unfold(dim {}, {}, {})", d, size, step),
                           [=](const Tensor& t) { return unfold(t, d, size, step); });
        }
        case 6: {
          const int64_t e = any_dim(x);
          if (e == d) break;
          return view_call(fmt::format("diagonal({}, {})", d, e),
                           [=](const Tensor& t) { return diagonal(t, 0, d, e); });
        }
        case 7:
          return view_call("squeeze()", [](const Tensor& t) { return squeeze(t); });
        default:
          break;
      }
    }
    if (draws_.one_in(2)) {
      Shape sizes = x.sizes();
      for (SymInt& size : sizes) {
        if (size.value() == 1 && draws_.one_in(2)) size = 3;
      }
      if (sizes.ndim() < kMaxDims && draws_.one_in(2)) sizes.insert(0, 2);
      return view_call(fmt::format("expand({})", sizes), [=](const Tensor& t) { return expand(t, sizes); });
    }
    const int64_t at = draws_.below(x.ndim() + 1);
    return view_call(fmt::format("unsqueeze({})", at), [=](const Tensor& t) { return unsqueeze(t, at); });
  }

  // Another tensor that lives and broadcasts to `sizes`.
  int broadcasting_to(const Extents& sizes) {
    std::vector<int> fitting;
    for (size_t i = 0; i < alive_.size(); ++i) {
      const Extents other = alive_[i].plain.extents();
      bool fits = other.ndim() <= sizes.ndim();
      for (int d = 1; fits && d <= other.ndim(); ++d) {
        const int64_t a = other[static_cast<size_t>(other.ndim() - d)],
                      b = sizes[static_cast<size_t>(sizes.ndim() - d)];
        fits = a == b || a == 1;
      }
      if (fits) fitting.push_back(static_cast<int>(i));
    }
    return fitting.empty() ? -1 : draws_.of(fitting);
  }

  Call any_write(const Tensor& x) {
    static const std::vector<double> numbers = {0.0, 2.0, -1.0, 10.0, 0.5};
    const double number = draws_.of(numbers);
    const Scalar scalar = is_floating(x.dtype()) ? Scalar(number) : Scalar(static_cast<int64_t>(number));
    const int other = draws_.one_in(2) ? broadcasting_to(x.extents()) : -1;
    const auto write_call = [&](std::string name, std::function<Tensor(const Tensor&, const Tensor&)> fn, int second) {
      return Call{.kind = Kind::write, .name = std::move(name), .run = std::move(fn), .second = second};
    };
    if (other >= 0 && (is_floating(x.dtype()) || !is_floating(alive_[static_cast<size_t>(other)].plain.dtype()))) {
      switch (draws_.below(3)) {
        case 0:
          return write_call("add_", [](const Tensor& t, const Tensor& y) { return add_(t, y); }, other);
        case 1:
          return write_call("mul_", [](const Tensor& t, const Tensor& y) { return mul_(t, y); }, other);
        default:
          return write_call("copy_", [](const Tensor& t, const Tensor& y) { return copy_(t, y); }, other);
      }
    }
    switch (draws_.below(4)) {
      case 0:
        return write_call(
            fmt::format("add_({})", scalar.to_string()),
            [=](const Tensor& t, const Tensor&) { return add_(t, scalar); }, -1);
      case 1:
        return write_call(
            fmt::format("mul_({})", scalar.to_string()),
            [=](const Tensor& t, const Tensor&) { return mul_(t, scalar); }, -1);
      case 2:
        return write_call(
            fmt::format("fill_({})", scalar.to_string()),
            [=](const Tensor& t, const Tensor&) { return fill_(t, scalar); }, -1);
      default:
        return write_call("zero_", [](const Tensor& t, const Tensor&) { return zero_(t); }, -1);
    }
  }

  Call any_pure(const Tensor& x) {
    const auto of_one = [](std::string name, std::function<Tensor(const Tensor&)> fn) {
      return Call{Kind::pure, std::move(name), [fn = std::move(fn)](const Tensor& t, const Tensor&) { return fn(t); }};
    };
    const Dims dims = any_dims(x);
    const bool keepdim = draws_.one_in(2);
    const int64_t d = any_dim(x);
    switch (draws_.below(17)) {
      case 0:
        return of_one(fmt::format("sum({}, {})", dims, keepdim),
                      [=](const Tensor& t) { return sum(t, {.dims = dims, .keepdim = keepdim}); });
      case 1:
        return of_one(fmt::format("amax({}, {})", dims, keepdim),
                      [=](const Tensor& t) { return amax(t, {.dims = dims, .keepdim = keepdim}); });
      case 2:
        return of_one(fmt::format("amin({}, {})", dims, keepdim),
                      [=](const Tensor& t) { return amin(t, {.dims = dims, .keepdim = keepdim}); });
      case 3:
        return of_one(fmt::format("any({}, {})", dims, keepdim),
                      [=](const Tensor& t) { return any(t, {.dims = dims, .keepdim = keepdim}); });
      case 4:
        return of_one(fmt::format("flip({})", dims), [=](const Tensor& t) { return flip(t, dims); });
      case 5:
        if (!is_floating(x.dtype())) break;
        return of_one(fmt::format("mean({}, {})", dims, keepdim),
                      [=](const Tensor& t) { return mean(t, {.dims = dims, .keepdim = keepdim}); });
      case 6:
        if (!is_floating(x.dtype()) || x.ndim() == 0) break;
        return of_one(fmt::format("softmax({})", d), [=](const Tensor& t) { return softmax(t, d); });
      case 7:
        if (x.ndim() == 0) break;
        return of_one(fmt::format("cumsum({})", d), [=](const Tensor& t) { return cumsum(t, d); });
      case 8:
        if (x.ndim() == 0) break;
        return of_one(fmt::format("argsort({}, {})", d, keepdim),
                      [=](const Tensor& t) { return argsort(t, d, keepdim); });
      case 9: {
        const int other = broadcasting_to(x.extents());
        if (other < 0) break;
        const bool adds = draws_.one_in(2);
        return Call{.kind = Kind::pure,
                    .name = adds ? "add" : "mul",
                    .run = [=](const Tensor& t, const Tensor& y) { return adds ? add(t, y) : mul(t, y); },
                    .second = other};
      }
      case 10: {
        if (x.ndim() == 0) break;
        const bool stacks = draws_.one_in(3);
        const int64_t at = stacks ? draws_.below(x.ndim() + 1) : d;
        return of_one(fmt::format("{}({})", stacks ? "stack" : "cat", at),
                      [=](const Tensor& t) { return stacks ? stack({t, t}, at) : cat({t, t, t}, at); });
      }
      case 11:
        if (x.ndim() == 0) break;
        return of_one(fmt::format("pad({})", d), [=](const Tensor& t) { return pad(t, d, 1, 2, 0.0); });
      case 12:
        if (x.ndim() == 0) break;
        return of_one(fmt::format("roll({})", d), [=](const Tensor& t) { return roll(t, 1, d); });
      case 13: {
        const Scalar scalar = draws_.one_in(2) ? Scalar(2) : Scalar(0.5);
        return of_one(fmt::format("mul({})", scalar.to_string()), [=](const Tensor& t) { return mul(t, scalar); });
      }
      case 14:
        if (x.ndim() != 2 || !is_floating(x.dtype())) break;
        return of_one("matmul with its transpose", [](const Tensor& t) { return matmul(t, transpose(t, 0, 1)); });
      case 15: {
        if (!is_floating(x.dtype()) || x.ndim() == 0 || x.extent(0) == 0) break;
        const SharedFunction& fn = draws_.of(shared_functions());
        return {.kind = Kind::pure,
                .name = fmt::format("compiled {}", fn.name),
                .run = [&fn](const Tensor& t, const Tensor&) { return fn.eager(t); },
                .on_mesh = [&fn](const Tensor& t, const Tensor&) { return fn.compiled(t); },
                .writes_inside = fn.eager == written_inside};
      }
      case 16: {
        const Placements placements = any_placements(x.extents());
        return {.kind = Kind::pure,
                .name = fmt::format("redistribute to {}", to_string(placements)),
                .run = [](const Tensor& t, const Tensor&) { return clone(t); },
                .on_mesh =
                    [placements](const Tensor& t, const Tensor&) {
                      const Tensor moved = redistribute(t, placements);
                      return moved.is_same(t) ? clone(t) : moved;  // it had that layout
                    }};
      }
      default:
        break;
    }
    return of_one("clone", [](const Tensor& t) { return clone(t); });
  }

  void step() {
    const auto at = static_cast<size_t>(draws_.below(std::ssize(alive_)));
    const Pair x = alive_[at];
    const int64_t kind = draws_.below(10);
    const Call call = kind < 3 ? any_view(x.plain) : kind < 6 ? any_write(x.plain) : any_pure(x.plain);
    const Pair y = call.second < 0 ? Pair{} : alive_[static_cast<size_t>(call.second)];
    text_ += fmt::format("  {} = {}(t{}{})\n",
                         call.kind == Kind::write ? fmt::format("t{}", at) : fmt::format("t{}", alive_.size()),
                         call.name, at, call.second < 0 ? "" : fmt::format(", t{}", call.second));
    const bool reads_stale = x.is_stale() || (call.second >= 0 && y.is_stale()),
               is_forbidden = reads_stale || (call.kind == Kind::write && x.is_copy);
    ++counts_.calls;
    counts_.writes += call.kind == Kind::write;
    Tensor spread;
    std::string refusal;
    try {
      spread = (call.on_mesh ? call.on_mesh : call.run)(x.spread, y.spread);
    } catch (const UsageError& error) {
      refusal = error.what();
    } catch (const std::exception& error) {
      fail(error.what());
    }
    Tensor plain;
    if (refusal.empty() || call.kind != Kind::write) {
      try {
        plain = call.run(x.plain, y.plain);
      } catch (const UsageError& error) {
        if (refusal.empty()) fail(fmt::format("plain tensors refuse it: {}", error.what()));
      }
    }
    if (!refusal.empty()) {
      const bool is_legal = is_forbidden || call.writes_inside ||
                            (call.kind == Kind::write ? is_known_refusal(refusal) : !plain.defined());
      if (!is_legal) fail("refused: " + refusal);
      ++counts_.refused;
      text_ += "    refused: " + refusal.substr(0, refusal.find('\n')) + "\n";
    } else if (is_forbidden) {
      // A view of the whole of it may be taken, such as squeeze() of no dims, and is as old.
      if (call.kind != Kind::view || !is_refused_as_old(spread))
        fail(reads_stale ? "a copy of what has been written since was read" : "a copy was written");
    } else if (call.kind != Kind::write) {
      bool is_copy = false;
      if (call.kind == Kind::view) {
        // A reshape of plain tensors that no strides express becomes a tensor of its own, and so does what only some
        // ranks had to copy.
        const int64_t copies = on_how_many(part_of(spread, "a test").copied != nullptr);
        const bool is_own = plain.storage().get() != x.plain.storage().get() || (copies > 0 && copies < mesh_->size());
        if (is_own) plain = clone(plain), spread = clone(spread);
        else is_copy = copies > 0;
      }
      if (call.kind == Kind::pure && plain.storage().get() == x.plain.storage().get())
        fail("the result is the operand");
      alive_.push_back({plain, spread, is_copy, plain.version()});
      text_.insert(text_.size() - 1, fmt::format(": {}{}", spec_of(spread).to_string(), is_copy ? ", a copy" : ""));
    }
    check(call.name);
    if (alive_.size() > kMostAlive) {
      alive_.erase(alive_.begin() + draws_.below(std::ssize(alive_) - 1));
      text_ += "  one is dropped, later ones move up\n";
    }
  }

  int64_t on_how_many(bool here) {
    int64_t count = here;
    for (int64_t dim = 0; dim < mesh_->ndim(); ++dim) {
      const std::vector<std::string> counts = mesh_->group(dim)->all_gather_bytes(std::to_string(count));
      count = 0;
      for (const std::string& other : counts) count += std::stoll(other);
    }
    return count;
  }

  void check(const std::string& after) {
    for (size_t i = 0; i < alive_.size(); ++i) {
      const Pair& p = alive_[i];
      if (p.is_stale()) {
        if (!is_refused_as_old(p.spread)) fail(fmt::format("t{}, a copy, was read after {}", i, after));
        continue;
      }
      const DTensorSpec& spec = spec_of(p.spread);
      std::string found;
      if (spec.has_partial()) {
        found = difference(full_tensor(p.spread), p.plain);
      } else {
        const LayoutOptions layout{.order = spec.order(), .cut = spec.cut()};
        found = difference(to_local(p.spread), to_local(distribute_tensor(p.plain, mesh_, spec.placements(),
                                                                          {.layout = layout, .src_data_rank = -1})));
      }
      if (!found.empty()) fail(fmt::format("t{}, {}, after {}: {}", i, spec.to_string(), after, found));
    }
  }

  [[noreturn]] void fail(const std::string& why) const {
    throw std::logic_error(
        fmt::format("seed {} on {}, place {}: {}\n{}", seed_, mesh_->to_string(), mesh_->rank(), why, text_));
  }

  const Mesh mesh_;
  Draws draws_;
  const uint64_t seed_;
  ProgramCounts& counts_;
  std::vector<Pair> alive_;
  std::string text_;
};

}  // namespace

std::string first_difference_on_meshes(uint64_t first, int64_t count, ProgramCounts* counts) {
  static const std::vector<std::vector<int64_t>> shapes = {{2},    {3}, {2, 1}, {2, 2},    {1, 2},    {4},
                                                           {3, 2}, {1}, {5},    {2, 1, 2}, {1, 3, 1}, {7}};
  const codegen::ContractionLeafForTests leaf(2);
  ProgramCounts all;
  // One set of ranks runs several programs, so that what they keep meets calls of other programs.
  constexpr int64_t kProgramsOfRanks = 25;
  for (int64_t begin = 0; begin < count; begin += kProgramsOfRanks) {
    const std::vector<int64_t>& shape = shapes[static_cast<size_t>(begin / kProgramsOfRanks) % shapes.size()];
    try {
      on_mesh(shape, [&](const Mesh& mesh) {
        ProgramCounts own;
        for (int64_t i = begin; i < std::min(begin + kProgramsOfRanks, count); ++i, ++own.programs)
          Program(mesh, first + static_cast<uint64_t>(i), own).run();
        if (mesh->rank() != mesh->ranks()[0]) return;
        all.programs += own.programs, all.calls += own.calls, all.writes += own.writes, all.refused += own.refused;
      });
    } catch (const std::exception& error) {
      return error.what();
    }
  }
  if (counts != nullptr) *counts = all;
  return "";
}

}  // namespace tutti::dist
