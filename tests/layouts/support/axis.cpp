#include "tests/layouts/support/axis.h"

#include <fmt/format.h>

#include "tutti/comm/combine.h"
#include "tutti/core/error.h"
#include "tutti/ops/cat.h"
#include "tutti/ops/copy.h"

namespace tutti::layouts {
namespace {

void throw_if(bool aborted) {
  if (aborted) throw EnvironmentError("another rank failed");
}

// Rows [begin, end) of the tree sum of dense f32 tensors.
Tensor tree_sum(const std::vector<Tensor>& addends, int64_t begin, int64_t end) {
  Extents sizes = addends[0].extents();
  const int64_t row = sizes[0] == 0 ? 0 : addends[0].numel() / sizes[0];
  sizes[0] = end - begin;
  const Tensor sum = Tensor::empty(sizes);
  std::vector<const std::byte*> pointers;
  for (const Tensor& t : addends) {
    TUTTI_CHECK(t.extents() == addends[0].extents() && t.is_contiguous(), "tree sum: {} and {}", describe(t), describe(addends[0]));
    pointers.push_back(reinterpret_cast<const std::byte*>(t.data<float>() + begin * row));
  }
  comm::combine(comm::ReduceKind::sum, DType::f32, pointers, {}, sum.numel(), reinterpret_cast<std::byte*>(sum.data<float>()));
  return sum;
}

std::vector<Tensor> first_of(const std::vector<std::vector<Tensor>>& all) {
  std::vector<Tensor> list;
  for (const auto& tensors : all) list.push_back(tensors[0]);
  return list;
}

}  // namespace

void Meeting::meet(std::unique_lock<std::mutex>& lock) {
  const int64_t round = round_;
  if (++waiting_ == static_cast<int>(shown_.size())) {
    waiting_ = 0;
    ++round_;
    arrived_.notify_all();
  }
  arrived_.wait(lock, [&] { return round_ != round || aborted_; });
  throw_if(aborted_);
}

void Meeting::exchange(int rank, const std::vector<Tensor>& mine, const Look& look) {
  std::unique_lock lock(mutex_);
  shown_[static_cast<size_t>(rank)] = mine;
  meet(lock);
  const auto all = shown_;
  lock.unlock();
  look(all);
  lock.lock();
  meet(lock);
  shown_[static_cast<size_t>(rank)].clear();
}

void Meeting::abort() {
  const std::lock_guard lock(mutex_);
  aborted_ = true;
  arrived_.notify_all();
}

void Mailbox::send(Tensor t) {
  const std::lock_guard lock(mutex_);
  queue_.push_back(std::move(t));
  arrived_.notify_all();
}

Tensor Mailbox::receive() {
  std::unique_lock lock(mutex_);
  arrived_.wait(lock, [&] { return !queue_.empty() || aborted_; });
  throw_if(aborted_);
  Tensor t = std::move(queue_.front());
  queue_.erase(queue_.begin());
  return t;
}

void Mailbox::abort() {
  const std::lock_guard lock(mutex_);
  aborted_ = true;
  arrived_.notify_all();
}

std::shared_ptr<Meeting> World::meeting(const std::string& name, int size) {
  const std::lock_guard lock(mutex_);
  throw_if(aborted_);
  auto& meeting = meetings_[name];
  if (!meeting) meeting = std::make_shared<Meeting>(size);
  return meeting;
}

std::shared_ptr<Mailbox> World::mailbox(const std::string& name) {
  const std::lock_guard lock(mutex_);
  throw_if(aborted_);
  auto& mailbox = mailboxes_[name];
  if (!mailbox) mailbox = std::make_shared<Mailbox>();
  return mailbox;
}

void World::abort() {
  const std::lock_guard lock(mutex_);
  aborted_ = true;
  for (auto& [name, meeting] : meetings_) meeting->abort();
  for (auto& [name, mailbox] : mailboxes_) mailbox->abort();
}

Axis::Axis(World& world, const std::string& group, int rank, int size)
    : meeting_(world.meeting(group, size)), rank_(rank), size_(size) {}

Tensor Axis::all_reduce(const Tensor& t) const {
  if (size_ == 1) return t;
  Tensor sum;
  const Tensor dense = to_contiguous(t);
  meeting_->exchange(rank_, {dense}, [&](const auto& all) { sum = tree_sum(first_of(all), 0, t.extents()[0]); });
  count(2.0 * (size_ - 1) / size_ * static_cast<double>(t.nbytes()));
  return sum;
}

Tensor Axis::reduce_scatter(const Tensor& t, const std::vector<int64_t>& begins) const {
  if (size_ == 1) return t;
  Tensor sum;
  const size_t r = static_cast<size_t>(rank_);
  const Tensor dense = to_contiguous(t);
  meeting_->exchange(rank_, {dense}, [&](const auto& all) { sum = tree_sum(first_of(all), begins[r], begins[r + 1]); });
  count(static_cast<double>(t.nbytes() - sum.nbytes()));
  return sum;
}

std::vector<Tensor> Axis::gather_each(const Tensor& t) const {
  if (size_ == 1) return {t};
  std::vector<Tensor> copies;
  const Tensor dense = to_contiguous(t);
  meeting_->exchange(rank_, {dense}, [&](const auto& all) {
    for (const Tensor& other : first_of(all)) copies.push_back(clone(other));
  });
  count(static_cast<double>(size_ - 1) * static_cast<double>(t.nbytes()));
  return copies;
}

Tensor Axis::all_gather(const Tensor& t) const { return size_ == 1 ? t : cat(gather_each(t), 0); }

std::vector<Tensor> Axis::all_to_all(const std::vector<Tensor>& parts) const {
  if (size_ == 1) return parts;
  std::vector<Tensor> dense, received;
  for (const Tensor& t : parts) dense.push_back(to_contiguous(t));
  meeting_->exchange(rank_, dense, [&](const auto& all) {
    for (const auto& sent : all) received.push_back(clone(sent[static_cast<size_t>(rank_)]));
  });
  for (size_t r = 0; r < parts.size(); ++r) count(static_cast<int>(r) == rank_ ? 0 : static_cast<double>(parts[r].nbytes()));
  return received;
}

}  // namespace tutti::layouts
