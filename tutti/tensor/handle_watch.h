// Which Tensor objects somebody reads tensors through, and whether one of them has been lost since.
//
// Who keeps what was computed from a tensor of somebody else's keeps a handle of its own on it, and does not see that the
// program's variable now holds another one: `w = w + 1`, `model = Model{}`, std::swap, a vector that moves its elements. How
// many handles there are does not say it either, since others come and go. So the reader notes, once, the handles that it
// reads through; those that are still there at the end are places of the program, and losing one of them counts.
//
//   auto losses = std::make_shared<std::atomic<int64_t>>(0);
//   {
//     HandleNotes notes;
//     notes.read(w);  // or the code below does, where it sees what is read
//     run();          // copies w, copies the copy, ...
//     notes.watch(losses);
//   }
//   w = zeros({3});   // *losses is 1
//
// Not seen: a pointer or a reference that now leads to another Tensor object, and objects that join those that are read.
#pragma once

#include <atomic>
#include <memory>
#include <unordered_map>

#include "tutti/tensor/tensor.h"

namespace tutti {

// Notes the handles that this thread reads tensors through, while it lives. One thread.
class HandleNotes {
 public:
  HandleNotes();
  ~HandleNotes();
  HandleNotes(const HandleNotes&) = delete;
  HandleNotes& operator=(const HandleNotes&) = delete;
  static HandleNotes* current();  // of this thread; null: nobody notes
  // Handles that are copied while it lives are not noted.
  class Pause {
   public:
    Pause();
    ~Pause();
    Pause(const Pause&) = delete;
    Pause& operator=(const Pause&) = delete;

   private:
    HandleNotes* const notes_;
  };

  // `t` is read. From now on it is noted, too, which other handles it is copied from.
  void read(const Tensor& t);
  // Whether a noted handle of `t` is still there.
  bool has_handle_of(const Tensor& t) const;
  // `t` is of no interest after all.
  void forget(const Tensor& t);
  // From now on, and as long as somebody keeps `losses`, losing one of the noted handles that are still there adds one to it. Any
  // thread may lose them.
  void watch(const std::shared_ptr<std::atomic<int64_t>>& losses) const;

 private:
  friend struct TensorImpl;  // tells what happens to handles
  void note(TensorImpl& impl, const void* handle);
  HandleNotes* const previous_;
  std::unordered_map<const void*, TensorImpl*> handles_;
};

}  // namespace tutti
