// One rank's part of a tiny model: its pipeline stage, its heads and columns, its experts, on its tokens.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "tests/layouts/support/parallel_ops.h"
#include "tests/layouts/support/parameters.h"
#include "tutti/ops/rope.h"

namespace tutti::layouts {

class ParallelModel {
 public:
  ParallelModel(const ModelConfig& config, const RunConfig& run, const Place& place);

  // The parameters that this rank holds (a part of).
  const std::vector<ParameterSpec>& specs() const { return specs_; }
  // Gives a parameter of this rank for one use, in f32.
  std::function<Tensor(const std::string& name)> parameter;

  // From the tokens (first stage) or the activations `x` of the stage before to the activations of this stage, or to
  // the losses of this rank's context part (last stage).
  Tensor forward(const Tensor& x_TD, const std::vector<int32_t>& tokens, const std::vector<int32_t>& labels) const;

  int first_layer() const { return first_layer_; }

 private:
  struct Angles {
    Tensor cos, sin;
  };
  bool holds(const ParameterSpec& spec) const;
  Tensor used(const std::string& name) const;
  TreeCut vocabulary_part() const;
  std::vector<int32_t> in_order(const std::vector<int32_t>& values) const;
  Tensor heads_of(const std::string& layer, const char* which, const Tensor& n, const Tensor& n_all,
                  const Angles& angles) const;
  Tensor block(const std::string& layer, const Tensor& x, const Angles& angles) const;
  Tensor dense(const std::string& layer, const Tensor& m) const;
  Tensor moe(const std::string& layer, const Tensor& m) const;

  ModelConfig c_;
  RunConfig run_;
  const Place& place_;
  int first_layer_, end_layer_;
  std::vector<ParameterSpec> specs_;
  std::vector<int64_t> positions_;
  RopeTable rope_;
};

}  // namespace tutti::layouts
