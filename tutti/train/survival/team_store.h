// TeamStore: the store in which the ranks of a team meet (survivors.h). Whoever waits in it for a rank that is lost
// hears that the team is over.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "tutti/job/store/prefix_store.h"

namespace tutti::train {

class TeamStore final : public comm::PrefixStore {
 public:
  // Calls of a team that `is_over` throw TeamIsOver (survivors.h).
  TeamStore(std::string prefix, std::shared_ptr<Store> store, std::function<bool()> is_over)
      : PrefixStore(std::move(prefix), std::move(store)), is_over_(std::move(is_over)) {}

  std::string get(std::string_view key, Timeout timeout = {}) override;
  bool check(const Keys& keys) override;
  void wait(const Keys& keys, Timeout timeout = {}) override;
  std::vector<std::string> multi_get(const Keys& keys, Timeout timeout = {}) override;
  void barrier(std::string_view key, int64_t world_size, Timeout timeout = {}) override;
  void look() override;
  std::shared_ptr<Store> clone() override;

 private:
  template <class Wait>
  void in_portions(Timeout timeout, const Wait& wait);
  const std::function<bool()> is_over_;
};

}  // namespace tutti::train
