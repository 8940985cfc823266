#include "tutti/runtime/boundary.h"

#include <chrono>

namespace tutti {
namespace {

using Clock = std::chrono::steady_clock;

// An op takes a tenth of this, and a look at calls that cannot go on about as long.
constexpr std::chrono::microseconds kBetween{2};

std::atomic<void (*)() noexcept> attendant_{nullptr};

}  // namespace

constinit std::atomic<int> Boundary::wants_{0};

void Boundary::want(int change) {
  wants_.fetch_add(change, std::memory_order_relaxed);
  if (change > 0) wants_.notify_all();
}

void Boundary::await_want() { wants_.wait(0, std::memory_order_relaxed); }

void Boundary::set_attendant(void (*attendant)() noexcept) { attendant_.store(attendant, std::memory_order_release); }

void Boundary::attend() {
  thread_local bool is_inside = false;
  thread_local Clock::time_point next{};
  if (is_inside) return;
  void (*const attendant)() noexcept = attendant_.load(std::memory_order_acquire);
  if (attendant == nullptr || Clock::now() < next) return;
  is_inside = true;
  attendant();
  is_inside = false;
  next = Clock::now() + kBetween;
}

}  // namespace tutti
