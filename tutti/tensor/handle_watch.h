// Records the Tensor objects through which code reads tensors, and detects when one of them is overwritten or
// destroyed.
//
// A cache of results computed from the program's tensors keeps its own handles on them, and so does not see when a
// variable of the program comes to hold another tensor: `w = w + 1`, `model = Model{}`, std::swap, a vector that moves
// its elements. A count of handles does not tell either, since other handles come and go. Therefore the reader records,
// once, the Tensor objects that it reads through. Those that still exist afterwards are variables of the program, and
// each one that is lost later is counted.
//
//   auto losses = std::make_shared<std::atomic<int64_t>>(0);
//   {
//     HandleNotes notes;
//     notes.read(w);  // or called by the code inside run()
//     run();          // copies w, copies the copy, ...
//     notes.watch(losses);
//   }
//   w = zeros({3});   // *losses is 1
//
// Not detected: a pointer or reference that now refers to another Tensor object, and objects added to those that are
// read.
#pragma once

#include <atomic>
#include <memory>
#include <unordered_map>

#include "tutti/tensor/tensor.h"

namespace tutti {

// While it lives, records the Tensor objects (handles) through which this thread reads tensors. Used by one thread.
class HandleNotes {
 public:
  HandleNotes();
  ~HandleNotes();
  HandleNotes(const HandleNotes&) = delete;
  HandleNotes& operator=(const HandleNotes&) = delete;
  static HandleNotes* current();  // the current one of this thread, or null
  // While it lives, copies of handles are not recorded.
  class Pause {
   public:
    Pause();
    ~Pause();
    Pause(const Pause&) = delete;
    Pause& operator=(const Pause&) = delete;

   private:
    HandleNotes* const notes_;
  };

  // Call when `t` is read. From now on the handles that `t` is copied from are recorded as well.
  void read(const Tensor& t);
  // Whether a recorded handle of `t` still exists.
  bool has_handle_of(const Tensor& t) const;
  // Stops recording handles of `t`.
  void forget(const Tensor& t);
  // From now on, as long as `losses` is alive, it is incremented whenever one of the recorded handles that still exist
  // is lost, on any thread.
  void watch(const std::shared_ptr<std::atomic<int64_t>>& losses) const;

 private:
  friend struct TensorImpl;  // reports what happens to handles
  void note(TensorImpl& impl, const void* handle);
  HandleNotes* const previous_;
  std::unordered_map<const void*, TensorImpl*> handles_;
};

}  // namespace tutti
