// Functions that read elements run in segments: each ends in a read, and the value says which one is next.
#include <cstring>

#include "tutti/autograd/tape.h"
#include "tutti/graph/specialization.h"
#include "tutti/tensor/host_read.h"
#include "tutti/tensor/wrapper.h"

namespace tutti::graph {

std::shared_ptr<const Specialization> Continuations::find(const Tensor& value, const Leaves& arguments) const {
  const std::lock_guard lock(mutex_);
  for (const Entry& e : entries_) {
    const bool same = value.nbytes() == 0 ||
                      std::memcmp(e.value.raw_data(), value.raw_data(), static_cast<size_t>(value.nbytes())) == 0;
    if (same && e.next->captured_state_holds(arguments)) return e.next;
  }
  return nullptr;
}

void Continuations::drop(const HeldWatch& watch) {
  const std::lock_guard lock(mutex_);
  std::erase_if(entries_, [&](const Entry& e) { return e.next->watch.get() == &watch; });
}

void Continuations::add(const Tensor& value, std::shared_ptr<const Specialization> next, size_t limit) {
  const std::lock_guard lock(mutex_);
  if (entries_.size() >= limit) entries_.erase(entries_.begin());
  entries_.push_back({value, std::move(next)});
}

std::vector<Continuations::Entry> Continuations::entries() const {
  const std::lock_guard lock(mutex_);
  return entries_;
}

void run_segment(const Specialization& segment, const Leaves& arguments, Progress& progress) {
  for (const Tensor& t : arguments.tensors) before_host_read(inside_of(t));
  for (const Captured& c : segment.captured) before_host_read(inside_of(c.tensor)), autograd::note_captured(c.tensor);
  draw_keys(segment.keys, arguments.keys, progress.keys);
  const std::vector<Tensor> made = segment.forward->run(
      segment.memory_of(segment.sources, arguments.tensors, {}, progress.carried), {}, progress.keys);
  progress.has_written = progress.has_written || segment.forward->writes_given();
  const Tensor value = Tensor::empty(made[0].extents(), made[0].dtype());  // the memory may be written later
  copy_elements(value, made[0]);
  progress.read.push_back(value);
  progress.carried.insert(progress.carried.end(), made.begin() + 1, made.end());
}

}  // namespace tutti::graph
