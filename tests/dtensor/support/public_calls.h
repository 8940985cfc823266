// A call of every public function of tutti/ops that takes tensors.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "tutti/tensor/tensor.h"

namespace tutti::dist {

struct PublicCall {
  std::string name;  // of the function, then what is special about the call
  std::vector<Tensor> operands;
  std::function<std::vector<Tensor>(const std::vector<Tensor>&)> run;
  size_t written = 0;                        // so many of the first operands are changed
  const char* refusal = nullptr;             // what it says of any distributed operand
  const char* refusal_of_divided = nullptr;  // what it says where ranks divide what it writes
};

const std::vector<PublicCall>& public_calls();

}  // namespace tutti::dist
