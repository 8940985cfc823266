#include "tutti/parallel/divided_codes.h"

#include "tutti/core/error.h"
#include "tutti/nn/linear.h"

namespace tutti::parallel {

nn::WeightCodes divided_codes(const nn::Linear& layer, const dist::Mesh& mesh, bool by_rows) {
  const nn::WeightCodes whole = nn::coded_operand_of(layer)->codes();
  TUTTI_CHECK(!dist::is_dtensor(whole.codes),
              "parallelize_module: the codes of '{}' are {} already; they must be in one tensor", layer.call_name(),
              describe(whole.codes));
  nn::WeightCodes divided;
  for (const nn::CodePart& part : nn::kCodeParts) {
    const Tensor& values = whole.*part.tensor;
    if (!values.defined()) continue;
    const bool is_of_rows = part.tensor != &nn::WeightCodes::x_scale && part.tensor != &nn::WeightCodes::x_zero_point;
    divided.*part.tensor =
        dist::distribute_tensor(values, mesh, {by_rows && is_of_rows ? dist::shard(0) : dist::replicate()},
                                {.src_data_rank = -1, .shares_memory = values.storage()->is_read_only()});
  }
  return divided;
}

}  // namespace tutti::parallel
