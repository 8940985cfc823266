#include "tutti/dist/cost_model.h"

#include <algorithm>
#include <map>

#include <fmt/format.h>

#include "tutti/dist/device_mesh.h"

namespace tutti::dist {
namespace {

// Microseconds of a call and bytes per microsecond, as orders of magnitude.
const std::map<std::string_view, StepCost>& table() {
  static const std::map<std::string_view, StepCost> costs = {
      {"threads", {2, 8000}}, {"shm", {3, 6000}},    {"gloo", {150, 1500}}, {"mpi", {3, 3000}},
      {"hier", {150, 1500}},  {"nccl", {10, 80000}}, {"fake", {1, 10000}}};
  return costs;
}

StepCost tabulated(std::string_view transport) {
  const auto it = table().find(transport);
  return it == table().end() ? table().at("gloo") : it->second;
}

}  // namespace

double CostModel::of(StepKind kind, int64_t ranks, double bytes) const {
  if (ranks <= 1) return 0;
  if (measured == nullptr) return tabulated.of(bytes);
  double slowest = transports.empty() ? tabulated.of(bytes) : 0;
  for (const std::string& transport : transports) {
    const StepCost* cost = measured->find(transport, kind, ranks);
    slowest = std::max(slowest, cost != nullptr ? cost->of(bytes) : dist::tabulated(transport).of(bytes));
  }
  return slowest;
}

std::string CostModel::to_string() const {
  const std::string over = transports.empty() ? "for no transport" : fmt::format("for {}", fmt::join(transports, ", "));
  return measured == nullptr ? fmt::format("tabulated {}", over)
                             : fmt::format("measured {} ({} rows)", over, measured->size());
}

CostModel cost_model(std::string_view transport) {
  return {.tabulated = tabulated(transport), .transports = {std::string(transport)}};
}

std::vector<std::string> priced_transports() {
  std::vector<std::string> names;
  for (const auto& [name, cost] : table()) names.emplace_back(name);
  return names;
}

CostModel cost_model_of(const DeviceMesh& mesh) {
  if (!mesh.has_coordinate()) return {};
  CostModel model{.tabulated = {0, 1e18}, .transports = mesh.transports(), .measured = mesh.costs()};
  for (const std::string& transport : model.transports) {
    const StepCost cost = tabulated(transport);
    model.tabulated = {std::max(model.tabulated.latency, cost.latency),
                       std::min(model.tabulated.bytes_per_us, cost.bytes_per_us)};
  }
  return model;
}

}  // namespace tutti::dist
