// Memory that a tensor has only while somebody uses it, such as the copy of a parameter that ranks gather: who runs a
// program that reads the tensor asks for the memory before the first use, and gives it back after the last.
#pragma once

#include "tutti/tensor/tensor.h"

namespace tutti {

// One lends the memory of one or more tensors, all at once. The calls of a rank come in the same order on all ranks of
// a job that lend together.
class MemoryLender {
 public:
  // From now on the tensors have memory that holds their elements.
  virtual void lend() = 0;
  // Nobody reads them for now. `again`: the same call of the program will.
  virtual void take_back(bool again) = 0;
  // Whether take_back() is worth a call.
  virtual bool takes_back() const = 0;

 protected:
  ~MemoryLender() = default;
};

// The lender of a tensor's memory; null: it has memory, or none, whoever reads it.
MemoryLender* lender_of(const Tensor& t);
// From now on, until null is given, `lender` lends the memory of `t`. Reads of its elements that ask nobody find the
// memory that there is.
void set_lender(const Tensor& t, MemoryLender* lender);

}  // namespace tutti
