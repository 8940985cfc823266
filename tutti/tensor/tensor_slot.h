// TensorSlot: a place of the program that holds a tensor now and may hold another one later, such as a parameter or a
// buffer of a module.
//
// Code that runs eagerly reads the tensor that the slot holds. A trace notes that it read the slot, so that each later
// call of what it recorded reads the slot again and never works on a tensor that has been replaced.
#pragma once

#include <memory>
#include <string>

#include "tutti/tensor/tensor.h"

namespace tutti {

class TensorSlot {
 public:
  virtual ~TensorSlot() = default;
  // The tensor that it holds now. May throw, for example when it is not materialized yet.
  virtual Tensor held() const = 0;
  // The same for who does not read its elements now: they may not be there. Undefined where it holds something else,
  // for which held() throws.
  virtual Tensor known() const { return held(); }
  // The tensor whose values held() copies when they have changed; undefined where the slot holds the values themselves.
  virtual Tensor copied_from() const { return {}; }
  // Names it in errors, for example "parameter 'lm_head.weight'".
  virtual std::string description() const = 0;
};

// Observes which slots its thread reads, while it is current.
class SlotReads {
 public:
  // Returns the tensor to hand to the reader of `slot`.
  virtual Tensor read(const std::shared_ptr<const TensorSlot>& slot) = 0;
  static SlotReads* current();  // the current one of this thread, or null
  // Returns the previous one.
  static SlotReads* set_current(SlotReads* reads);

 protected:
  ~SlotReads() = default;
};

// The tensor that `slot` holds; the thread's SlotReads sees the read and may replace it.
Tensor read_slot(const std::shared_ptr<const TensorSlot>& slot);

}  // namespace tutti
