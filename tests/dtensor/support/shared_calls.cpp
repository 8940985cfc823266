#include "tests/dtensor/support/shared_calls.h"

#include <map>
#include <utility>

#include "tutti/autograd/backward.h"
#include "tutti/autograd/tape.h"
#include "tutti/ops/softmax.h"

namespace tutti::dist {
namespace {

// The result on one rank, and the gradients of both tensors.
struct Expected {
  Tensor y, of_first, of_second;
};

Tensor cotangent_of(const Tensor& y) { return sample(y.extents(), y.dtype(), 7); }

Expected on_one_rank(const SharedFunction& f, int64_t rows) {
  const Tensor a = requires_grad_(shared_first(rows)), b = requires_grad_(shared_second(rows));
  Expected e{.y = (f.eager ? f.eager : f.fn)(a, b), .of_first = {}, .of_second = {}};
  if (requires_grad(e.y)) backward(e.y, cotangent_of(e.y));
  e.of_first = grad_of(a), e.of_second = grad_of(b);
  return e;
}

void check_call(const Mesh& mesh, const SharedFunction& f, const Placements& layout, int64_t rows, const Expected& e,
                const std::string& about) {
  const Tensor a = requires_grad_(on_ranks(mesh, shared_first(rows), layout)),
               b = requires_grad_(on_ranks(mesh, shared_second(rows), layout));
  const Tensor y = f.fn(a, b);
  require_whole(y, e.y, about);
  if (!requires_grad(y)) return;
  backward(y, is_dtensor(y) ? on_ranks(mesh, cotangent_of(e.y), {}) : cotangent_of(e.y));
  require_whole(grad_of(a), e.of_first, about + ", gradient of the first");
  require_whole(grad_of(b), e.of_second, about + ", gradient of the second");
}

}  // namespace

std::vector<Placements> layouts_on(const Mesh& mesh) {
  if (mesh->ndim() == 1) return {{replicate()}, {shard(0)}, {shard(1)}};
  return {{replicate(), replicate()}, {shard(0), shard(1)}, {shard(1), replicate()}, {shard(0), shard(0)}};
}

Tensor shared_first(int64_t rows) { return sample({rows, 6}, DType::f32, static_cast<uint64_t>(rows)); }
Tensor shared_second(int64_t rows) {
  return softmax(sample({rows, 6}, DType::f32, 100 + static_cast<uint64_t>(rows)), -1);
}

Tensor on_ranks(const Mesh& mesh, const Tensor& whole, Placements placements) {
  return distribute_tensor(whole, mesh, std::move(placements), {.src_data_rank = -1});
}

void require_whole(const Tensor& t, const Tensor& whole, const std::string& about) {
  if (t.defined() != whole.defined()) throw std::logic_error("one is undefined; " + about);
  if (whole.defined()) require_none(difference(is_dtensor(t) ? full_tensor(t) : t, whole), about);
}

void check_shared(const std::vector<int64_t>& shape, const std::vector<SharedFunction>& all) {
  for (const SharedFunction& f : all) {
    std::map<int64_t, Expected> expected;
    for (const int64_t rows : kSharedRows) expected.try_emplace(rows, on_one_rank(f, rows));
    on_mesh(
        shape,
        [&](const Mesh& mesh) {
          for (const Placements& layout : layouts_on(mesh)) {
            for (const int64_t rows : kSharedRows) {
              const std::string about =
                  fmt::format("{} of {} rows as {} on {}", f.name, rows, to_string(layout), mesh->to_string());
              try {
                check_call(mesh, f, layout, rows, expected.at(rows), about);
              } catch (const Error& error) {
                throw std::logic_error(fmt::format("{}; {}", error.what(), about));
              }
            }
          }
        },
        kShortTimeout);
  }
}

}  // namespace tutti::dist
