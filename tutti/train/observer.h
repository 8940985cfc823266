// Observer: a part of the trainer that watches a run and does something beside its steps: logs, validates, saves.
//
// An observer is one file in tutti/train/observers with one row, and nothing else lists it: the table is made from the
// folder. Where several want the same moment, their turns say who is first; of one turn, the order of the names. All
// ranks have the same observers and call them at the same points, so each may be collective.
#pragma once

#include <memory>
#include <span>
#include <vector>

#include "tutti/train/report/metrics.h"

namespace tutti::train {

struct Run;

class Observer {
 public:
  // Made when model and optimizer are there, before anything is loaded.
  explicit Observer(Run& run) : run_(run) {}
  virtual ~Observer() = default;
  Observer(const Observer&) = delete;
  Observer& operator=(const Observer&) = delete;

  // The run is loaded, and its log is open.
  virtual void on_begin() {}
  // Around a step that this start computes. In between, the values of model and optimizer are about to change.
  virtual void before_step() {}
  virtual void before_change() {}
  virtual void after_step() {}
  // A step is committed, by this start or by an earlier team: what is measured now belongs into its record.
  virtual void on_record(StepRecord& /*record*/) {}
  // All ranks know whether the run stops here (run.result.interrupted).
  virtual void on_step_end() {}
  // Another team goes on with the run, with other ranks; what only this one can finish is finished now.
  virtual void on_team_end() {}
  // The last step of this start is taken.
  virtual void on_end() {}

 protected:
  Run& run_;
};

// The turn of an observer: it may rely on what those of earlier turns have done.
enum class Turn {
  trace,      // as close to the step as possible
  measure,    // adds to the record
  log,        // the record is complete
  save,       // the step is logged
  sample,     // the run is saved
  summarize,  // adds to the report
  report,     // the report is complete
  close,
};

struct ObserverRow {
  Turn turn;
  std::unique_ptr<Observer> (*make)(Run& run);
};

template <class T>
std::unique_ptr<Observer> make_observer(Run& run) {
  return std::make_unique<T>(run);
}

// The observers of a run, in their turns. Collective.
std::vector<std::unique_ptr<Observer>> make_observers(Run& run);

struct NamedObserverRow {
  const char* name;
  const ObserverRow* row;
};
// All observers, in their turns; and as the folder has them, by name.
std::vector<NamedObserverRow> observer_rows();
std::span<const NamedObserverRow> observer_table();

// TUTTI_OBSERVER(name) = {...}; at the end of tutti/train/observers/<name>.cpp, in this namespace.
#define TUTTI_OBSERVER(name)                \
  extern const ObserverRow name##_observer; \
  constinit const ObserverRow name##_observer

}  // namespace tutti::train
