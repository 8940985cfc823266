// [dlrm]: the keys with their defaults.
#include "tutti/train/config/section.h"

namespace tutti::train {
namespace {

std::vector<Field> dlrm_keys() {
  std::vector<Field> keys = {
      {TUTTI_KEY(dlrm, std::vector<int64_t>, bottom, {64}),
       .doc = "features of the layers over dense columns, without the last one, which has tables.dim", .unit = "",
       .rule = at_least(1), .resuming = Resuming::fixed},
      {TUTTI_KEY(dlrm, std::vector<int64_t>, top, {64, 32}),
       .doc = "features of the layers over products of pairs, without the last one, which has the logit", .unit = "",
       .rule = at_least(1), .resuming = Resuming::fixed},
  };
  for (Field& key : keys) key.only_of = ModelKind::clicks;
  return keys;
}

}  // namespace

TUTTI_SECTION(dlrm, DlrmConfig, 15) = {
    .name = "dlrm",
    .doc = "The layers of a click model.",
    .keys = dlrm_keys,
};

}  // namespace tutti::train
