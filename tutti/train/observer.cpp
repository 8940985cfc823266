#include "tutti/train/observer.h"

#include <algorithm>

namespace tutti::train {

std::vector<NamedObserverRow> observer_rows() {
  const std::span<const NamedObserverRow> table = observer_table();
  std::vector<NamedObserverRow> rows(table.begin(), table.end());
  std::stable_sort(rows.begin(), rows.end(),
                   [](const NamedObserverRow& a, const NamedObserverRow& b) { return a.row->turn < b.row->turn; });
  return rows;
}

std::vector<std::unique_ptr<Observer>> make_observers(Run& run) {
  std::vector<std::unique_ptr<Observer>> observers;
  for (const NamedObserverRow& o : observer_rows()) observers.push_back(o.row->make(run));
  return observers;
}

}  // namespace tutti::train
