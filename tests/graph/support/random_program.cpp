#include "tests/graph/support/random_program.h"

#include <random>

#include "tests/graph/support/risky_ops.h"
#include "tutti/autograd/tape.h"
#include "tutti/ops.h"
#include "tutti/ops/engine/facets.h"
#include "tutti/plan/capture_error.h"

namespace tutti::graph_test {
namespace {

using Kind = Instruction::Kind;
constexpr int kKinds = 14;

Tensor unary(uint32_t op, const Tensor& x) {
  switch (op % 13) {
    case 0:
      return neg(x);
    case 1:
      return abs(x);
    case 2:
      return exp(x);
    case 3:
      return tanh(x);
    case 4:
      return sqrt(abs(x));
    case 5:
      return sigmoid(x);
    case 6:
      return silu(x);
    case 7:
      return gelu(x);
    case 8:
      return floor(x);
    case 9:
      return mul(x, x);
    case 10:
      return clone(x);
    case 11:
      return sign(x);
    default:
      return erf(x);
  }
}

Tensor binary(uint32_t op, const Tensor& x, const Tensor& y) {
  switch (op % 7) {
    case 0:
      return add(x, y);
    case 1:
      return sub(x, y);
    case 2:
      return mul(x, y);
    case 3:
      return maximum(x, y);
    case 4:
      return minimum(x, y);
    case 5:
      return truediv(x, y);
    default:
      return add(mul(x, y), x);
  }
}

Tensor view_of(uint32_t op, const Tensor& x, uint32_t b, uint32_t c) {
  const int64_t dims = std::max(x.ndim(), 1);
  const int64_t d = b % static_cast<uint32_t>(dims), e = c % static_cast<uint32_t>(dims);
  switch (op % 8) {
    case 0:
      return transpose(x, d, e);
    case 1:
      return slice(x, d, static_cast<int64_t>(c % 3), x.size(d));
    case 2:
      return slice(x, d, 0, x.size(d), 2);
    case 3:
      return select(x, d, static_cast<int64_t>(c) % std::max<int64_t>(x.extent(d), 1));
    case 4:
      return flatten(x);
    case 5:
      return unsqueeze(x, d);
    case 6:
      return reshape(x, {floordiv(numel_of(x.sizes()), 2), 2});
    default:
      return expand(unsqueeze(x, 0), [&] {
        Shape sizes = x.sizes();
        sizes.insert(0, static_cast<int64_t>(c % 3 + 1));
        return sizes;
      }());
  }
}

Tensor row(uint32_t op, const Tensor& x, uint32_t b) {
  const int64_t d = b % static_cast<uint32_t>(std::max(x.ndim(), 1));
  switch (op % 9) {
    case 0:
      return sum(x, {.dims = {d}});
    case 1:
      return sum(x, {.dims = {-1}, .keepdim = true});
    case 2:
      return mean(x, {.dims = {d}, .keepdim = true});
    case 3:
      return amax(x, {.dims = {d}});
    case 4:
      return softmax(x, -1);
    case 5:
      return softmax(x, d);
    case 6:
      return sum(x);
    case 7:
      return cumsum(x, d);
    default:
      return sub(x, mean(x, {.dims = {-1}, .keepdim = true}));
  }
}

Tensor window(uint32_t op, const Tensor& x, uint32_t b, uint32_t c) {
  const int64_t d = b % static_cast<uint32_t>(std::max(x.ndim(), 1)), size = 1 + c % 3, step = 1 + c / 3 % 3;
  if (op % 2 == 0) return unfold(x, d, size, step);
  const int64_t apart = static_cast<int64_t>(op / 2 % 3);
  return as_strided(clone(detach(x)), {2, size},
                    {apart, step});  // it has no gradient, and names no memory of arguments
}

Tensor dropped(uint32_t op, const Tensor& x) {
  return op % 2 == 0 ? dropout(x, 0.3) : dropout(x, 0.5, {.key = op, .step = 3});
}

Tensor ranked(uint32_t op, const Tensor& x, uint32_t b) {
  TUTTI_CHECK(x.ndim() > 0, "nothing to rank");
  const int64_t d = b % static_cast<uint32_t>(x.ndim());
  const SortResult made =
      op % 2 == 0 ? sort(x, d) : topk(x, std::min<int64_t>(2, x.extent(static_cast<int>(d))), {.dim = d});
  return op / 2 % 3 == 0 ? made.indices : made.values;
}

void write(uint32_t op, const Tensor& target, const Tensor& y) {
  switch (op % 4) {
    case 0:
      add_(target, y);
      break;
    case 1:
      mul_(target, y);
      break;
    case 2:
      add_(target, 0.5);
      break;
    default:
      fill_(target, 1.25);
      break;
  }
}

DType dtype_of_number(uint32_t n) {
  constexpr DType dtypes[] = {DType::f32, DType::f32, DType::bf16, DType::f16, DType::f64, DType::i64, DType::i32};
  return dtypes[n % std::size(dtypes)];
}

}  // namespace

Program make_program(uint64_t seed) {
  std::mt19937_64 random(seed);
  Program program{random(), {}};
  const size_t length = 2 + random() % 12;
  for (size_t i = 0; i < length; ++i) {
    const auto word = [&] { return static_cast<uint32_t>(random() >> 32); };
    program.code.push_back({static_cast<Kind>(word() % kKinds), word(), word(), word(), word()});
  }
  return program;
}

std::vector<Tensor> arguments_of(const Program& program, int64_t growth) {
  std::mt19937_64 random(program.seed);
  const auto size = [&] { return static_cast<int64_t>(random() % 12 == 0 ? random() % 2 : 1 + random() % 9); };
  const auto grown = [&](int64_t n) { return n > 1 ? n + growth : n; };
  const int64_t rows = grown(size()), columns = random() % 4 == 0 ? 60 + size() : grown(size());
  const DType dtype = dtype_of_number(static_cast<uint32_t>(random()));
  const auto values = [&](const Extents& sizes, DType type) { return facets::sample_tensor(random(), sizes, type); };
  std::vector<Tensor> arguments = {values({rows, columns}, dtype), values({rows, columns}, DType::f32),
                                   values({columns}, dtype)};
  switch (random() % 4) {
    case 0:
      arguments.push_back(transpose(values({columns, rows}, dtype), 0, 1));
      break;
    case 1:
      arguments.push_back(slice(arguments[0], 0, 0, rows));
      break;  // all of argument 0
    case 2:
      arguments.push_back(slice(arguments[0], 0, rows > 1 ? 1 : 0, rows));
      break;
    default:
      arguments.push_back(slice(values({2 * rows + 1, columns}, dtype), 0, 1, 2 * rows + 1, 2));
      break;
  }
  return arguments;
}

static std::vector<Tensor> run(const Program& program, const std::vector<Tensor>& arguments, bool reads,
                               std::string* text) {
  std::vector<Tensor> pool = arguments;
  for (size_t i = 0; i < program.code.size(); ++i) {
    const Instruction& in = program.code[i];
    const auto pick = [&](uint32_t n) -> const Tensor& { return pool[n % pool.size()]; };
    const Tensor x = pick(in.a), y = pick(in.b), z = pick(in.c);
    const size_t before = pool.size();
    std::function<Tensor()> risky;
    try {
      switch (in.kind) {
        case Kind::unary:
          pool.push_back(unary(in.op, x));
          break;
        case Kind::binary:
          pool.push_back(binary(in.op, x, y));
          break;
        case Kind::scalar:
          pool.push_back(in.op % 2 ? add(x, 1.5) : mul(x, -2));
          break;
        case Kind::compare_where:
          pool.push_back(where(gt(x, y), x, z));
          break;
        case Kind::view:
          pool.push_back(view_of(in.op, x, in.b, in.c));
          break;
        case Kind::write:
          write(in.op, x, y);
          break;
        case Kind::row:
          pool.push_back(row(in.op, x, in.b));
          break;
        case Kind::cast:
          pool.push_back(cast(x, dtype_of_number(in.op)));
          break;
        case Kind::matmul:
          pool.push_back(matmul(x, in.op % 2 ? transpose(y, 0, 1) : y));
          break;
        case Kind::join:
          pool.push_back(in.op % 2 ? cat({x, y}, 0) : flip(x));
          break;
        case Kind::window:
          pool.push_back(window(in.op, x, in.b, in.c));
          break;
        case Kind::dropout:
          pool.push_back(dropped(in.op, x));
          break;
        case Kind::ranked:
          pool.push_back(ranked(in.op, x, in.b));
          break;
        case Kind::risky:
          risky = risky_call(in.op, x, y, in.c);
          break;
      }
      if (reads && in.c % 3 == 0 && gt(sum(y), 0.0).item_int() != 0) pool.push_back(neg(x));
    } catch (const CaptureError&) {
      throw;
    } catch (const UsageError&) {
      continue;
    }
    if (text != nullptr)
      *text += fmt::format("  {}: kind {} op {} on {}, {}, {}", i, static_cast<int>(in.kind), in.op % 1000,
                           in.a % before, in.b % before, in.c % before);
    if (risky) pool.push_back(risky());
    if (text != nullptr)
      *text += pool.size() > before ? fmt::format(" -> {} {}\n", before, tutti::describe(pool.back())) : "\n";
  }
  return pool;
}

std::vector<Tensor> run_program(const Program& program, const std::vector<Tensor>& arguments, bool reads) {
  return run(program, arguments, reads, nullptr);
}

std::string describe(const Program& program) {
  std::string text;
  const std::vector<Tensor> arguments = arguments_of(program);
  for (const Tensor& t : arguments)
    text += "  argument " + tutti::describe(t) + " strides " + to_string(t.strides()) + "\n";
  try {
    run(program, arguments, false, &text);
  } catch (const UsageError& e) {
    text += fmt::format(" throws {}\n", e.what());
  }
  return text;
}

}  // namespace tutti::graph_test
