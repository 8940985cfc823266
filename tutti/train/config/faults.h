// All that is wrong with a configuration, at once.
#pragma once

#include <fmt/format.h>

#include <string>
#include <utility>
#include <vector>

#include "tutti/core/error.h"

namespace tutti::train {

// One fault has its own text; several are lines of one message.
class ConfigError : public UsageError {
 public:
  explicit ConfigError(std::vector<std::string> faults);
  const std::vector<std::string>& faults() const { return faults_; }

 private:
  std::vector<std::string> faults_;
};

class Faults {
 public:
  // Each text is told once.
  void add(std::string fault);
  template <class... Args>
  void check(bool is_right, fmt::format_string<Args...> fault, Args&&... args) {
    if (!is_right) add(fmt::format(fault, std::forward<Args>(args)...));
  }
  // Runs `action`; the faults that it throws, or the one UsageError, are added.
  template <class Action>
  void collect(const Action& action) {
    try {
      action();
    } catch (const ConfigError& error) {
      for (const std::string& fault : error.faults()) add(fault);
    } catch (const UsageError& error) {
      add(error.what());
    }
  }
  // Adds faults of rules between keys, but those that name a key which is faulty itself: it has not its value.
  void add_rules(const Faults& rules);

  const std::vector<std::string>& texts() const { return texts_; }
  // Throws ConfigError if there are faults.
  void raise() const;

 private:
  std::vector<std::string> texts_;
};

}  // namespace tutti::train
