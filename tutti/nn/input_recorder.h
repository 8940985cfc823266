// InputRecorder: what linear layers are given while a model runs over a data set, for scales that are known beforehand
// and for the errors of quantized layers.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "tutti/nn/linear.h"

namespace tutti::nn {

class InputRecorder {
 public:
  // Records the inputs of all Linear layers below `module`, which must outlive it, until it is destroyed or stopped.
  // Forwards must not be compiled meanwhile. `rows` inputs of each layer are kept as they are. Used by one thread.
  explicit InputRecorder(Module& module, int64_t rows = 64);
  ~InputRecorder() { stop(); }
  InputRecorder(const InputRecorder&) = delete;
  InputRecorder& operator=(const InputRecorder&) = delete;
  void stop();

  struct Inputs {
    float least = 0, most = 0;  // of all that were finite, with 0
    int64_t count = 0;          // of rows
    int64_t in = 0;             // elements of a row
    std::vector<float> kept;    // [at most `rows`, in]: the first rows that were finite
  };
  // By the name of the layer below the module; null for one that was not called.
  const Inputs* find(const std::string& layer) const;

 private:
  void record(Inputs& inputs, const Tensor& x) const;

  const int64_t rows_;
  std::map<std::string, Inputs> inputs_;
  std::vector<HookHandle> hooks_;
};

}  // namespace tutti::nn
