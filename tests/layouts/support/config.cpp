#include "tests/layouts/support/config.h"

#include <fmt/format.h>

namespace tutti::layouts {

ModelConfig dense_config(DType compute) {
  ModelConfig config;
  config.compute = compute;
  return config;
}

ModelConfig moe_config(DType compute) {
  ModelConfig config;
  config.compute = compute;
  config.tied = false;
  config.inner = 27;
  config.experts = 6;
  return config;
}

std::string Layout::name() const {
  std::string text;
  const auto axis = [&](const char* what, int degree) {
    if (degree > 1) text += fmt::format("{}{}{}", text.empty() ? "" : " x ", what, degree);
  };
  axis("pp", pp);
  axis("dp", dp);
  axis("fsdp", fsdp);
  axis("cp", cp);
  axis("tp", tp);
  axis("ep", ep);
  if (sequence) text += " + sp";
  if (checkpoint) text += " + checkpoint";
  if (ring) text += " ring";
  if (rank_major) text += ", rank-major";
  return text.empty() ? "one rank" : text;
}

}  // namespace tutti::layouts
