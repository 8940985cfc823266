// Lesson 13: a feed-forward block whose weights are spread over ranks. The first matrix is cut by columns, the second
// by rows: one reduction at the end joins the parts, and loss and gradients have the bits of one rank.
// Last line of output: 1, 2 and 4 ranks: same loss, same gradients
#include <cstdio>
#include <mutex>
#include <set>
#include <string>

#include "tutti/autograd/backward.h"
#include "tutti/comm/run_ranks.h"
#include "tutti/core/hash.h"
#include "tutti/dist/comm_counter.h"
#include "tutti/dist/dtensor.h"
#include "tutti/dist/visualize.h"
#include "tutti/ops.h"

using namespace tutti;

constexpr int64_t kRows = 16, kWidth = 512, kHidden = 1024;

std::string train_step(const dist::Mesh& mesh) {
  const Tensor x = dist::distribute_tensor(normal({kRows, kWidth}, random_key("x")), mesh);
  const Tensor up = requires_grad_(dist::randn({kWidth, kHidden}, random_key("up"), mesh, {dist::shard(1)}));
  const Tensor down = requires_grad_(dist::randn({kHidden, kWidth}, random_key("down"), mesh, {dist::shard(0)}));
  const dist::CommCounter counter;
  const Tensor y = matmul(silu(matmul(x, up)), down);  // terms of a sum, one per rank
  const Tensor loss = mean(y * y);                     // needs their sum: the only communication of the forward
  backward(loss);
  if (mesh->rank() == 0 && mesh->size() == 2)
    std::printf("%s%s", dist::visualize(up).c_str(), counter.to_string().c_str());
  uint64_t bits = 0;
  for (const Tensor& t : {loss, grad_of(up), grad_of(down)}) {
    const Tensor all = to_contiguous(dist::full_tensor(t));
    bits = hash64(all.raw_data(), static_cast<size_t>(all.nbytes()), bits);
  }
  return fmt::format("{:016x}", bits);
}

int main() {
  std::set<std::string> results;
  std::mutex mutex;
  for (const int ranks : {1, 2, 4}) {
    comm::run_ranks(ranks, [&](comm::ProcessGroup&) {
      const std::string result = train_step(dist::init_device_mesh("cpu", {ranks}, {.names = {"tp"}}));
      const std::lock_guard lock(mutex);
      results.insert(result);
    });
  }
  std::printf("1, 2 and 4 ranks: %s\n", results.size() == 1 ? "same loss, same gradients" : "other bits");
}
