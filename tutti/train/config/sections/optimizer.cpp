// [optimizer]: the keys with their defaults.
#include "tutti/train/config/section.h"

namespace tutti::train {
namespace {

std::vector<Field> optimizer_keys() {
  return {
      {TUTTI_KEY(optimizer, std::string, name, "adamw"), .doc = "optimizer", .unit = "",
       .rule = one_of({"adamw", "sgd"}), .resuming = Resuming::fixed},
      {TUTTI_KEY(optimizer, double, lr, 8e-4), .doc = "base learning rate", .unit = "", .rule = at_least(0),
       .resuming = Resuming::told},
      {TUTTI_KEY(optimizer, double, beta1, 0.9), .doc = "AdamW: decay of the first moment", .unit = "",
       .rule = between(0, 1), .resuming = Resuming::told},
      {TUTTI_KEY(optimizer, double, beta2, 0.95), .doc = "AdamW: decay of the second moment", .unit = "",
       .rule = between(0, 1), .resuming = Resuming::told},
      {TUTTI_KEY(optimizer, double, eps, 1e-8), .doc = "AdamW: term added to the square root of the second moment",
       .unit = "", .rule = above(0), .resuming = Resuming::told},
      {TUTTI_KEY(optimizer, double, weight_decay, 0.1),
       .doc = "weight decay; decoupled for adamw, added to the gradient for sgd", .unit = "", .rule = at_least(0),
       .resuming = Resuming::told},
      {TUTTI_KEY(optimizer, double, momentum, 0.0), .doc = "SGD: momentum", .unit = "", .rule = between(0, 1),
       .resuming = Resuming::told},
  };
}

}  // namespace

TUTTI_SECTION(optimizer, OptimizerConfig, 6) = {
    .name = "optimizer",
    .doc = "The optimizer.",
    .keys = optimizer_keys,
};

}  // namespace tutti::train
