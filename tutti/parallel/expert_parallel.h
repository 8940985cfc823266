// Expert parallelism: the experts of MoE layers are divided over ranks, and tokens travel to them (docs/moe.md).
//
//   const dist::Mesh mesh = dist::init_device_mesh("cpu", {2, 4}, {.names = {"efsdp", "ep"}});
//   parallel::expert_parallel(model, mesh->slice({"ep"}));
//   nn::initialize(model);   // each rank draws the experts that it has
//
// Every rank has its own tokens and all other parameters; or tensor-parallel ranks divide those (parallelize_module
// after expert_parallel), and have tokens of one batch each. In strict mode outputs and gradients have the bits of a
// rank that has all experts: the gradient of an expert is that of the tokens of all ranks of the mesh, in their order,
// so it is a node of as many virtual shards as the mesh has ranks (parameter_class.h).
#pragma once

#include <cstdint>

#include "tutti/dist/device_mesh.h"
#include "tutti/nn/module.h"
#include "tutti/nn/token_dispatcher.h"

namespace tutti::parallel {

class TokenPlaces;

// How rows come to the experts of other ranks, and back. All have the same bits.
enum class ExpertExchange : uint8_t {
  standard,        // all_to_all with room for the worst case
  standard_exact,  // the ranks exchange the counts first and make room for as many rows as come; this reads them on the
                   // host, which a compiled step cannot do
  direct_store,  // rows are stored where experts and tokens need them (shared_dispatchers.h); for transports that share
                 // memory
  gather_on_read,  // experts read the tokens of other ranks in place; likewise
};

struct ExpertParallelOptions {
  // The most tokens of a rank in a forward; 0: all ranks have as many as this one.
  int64_t max_tokens = 0;
  ExpertExchange exchange = ExpertExchange::standard;
};

// Divides the experts of all MoE layers of the module over the ranks of a mesh of one dim, equally and in their order:
// their weights become distributed tensors [S(0)]. A mesh of one rank leaves it all experts, for the tokens that
// tensor-parallel ranks leave it. Parameters without values get memory for this rank's experts only; those that have
// values must have those of all ranks. Call it before gradients and optimizers are set up, and make the same calls of
// forward and backward on all ranks.
//
// UsageError, before anything changes: for a mesh of several dims or without this rank, ranks that do not divide the
// experts, an exchange that needs shared memory where the transport has none, and in strict mode a number of ranks that
// is no power of two.
void expert_parallel(nn::Module& module, const dist::Mesh& mesh, const ExpertParallelOptions& options = {});

// Rows travel by all_to_all. With room for the worst case no count is read on the way, and a step can be compiled. Rows
// are sorted by expert, rank and token.
class ExchangeDispatcher final : public nn::TokenDispatcher {
 public:
  // `experts` in all, which the ranks of `group` divide.
  ExchangeDispatcher(std::shared_ptr<comm::ProcessGroup> group, int64_t experts, const ExpertParallelOptions& options);
  ~ExchangeDispatcher() override;
  // Errors are those of TokenPlaces (token_places.h).
  nn::Dispatched dispatch(const Tensor& x_TD, const nn::Routing& routing, SymInt most_tokens) const override;
  Tensor combine(const Tensor& outputs_RD, const nn::Dispatched& dispatched, const nn::Routing& routing) const override;

 private:
  const std::shared_ptr<comm::ProcessGroup> group_;
  const int64_t experts_;
  const ExpertParallelOptions options_;
  const std::unique_ptr<const TokenPlaces> places_;
};

}  // namespace tutti::parallel
