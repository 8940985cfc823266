// Writes report.html.
#include "tutti/train/observer.h"
#include "tutti/train/report/run_log.h"
#include "tutti/train/run.h"

namespace tutti::train {
namespace {

class ReportPage final : public Observer {
 public:
  using Observer::Observer;
  void on_end() override {
    if (run_.log) run_.log->write_report();
  }
};

}  // namespace

TUTTI_OBSERVER(report) = {.turn = Turn::report, .make = make_observer<ReportPage>};

}  // namespace tutti::train
