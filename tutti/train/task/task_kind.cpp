#include "tutti/train/task/task_kind.h"

#include "tutti/train/config/model_kind.h"

namespace tutti::train {

const TaskKind& task_kind(const Config& config) {
  return kind_of(config) == ModelKind::clicks ? click_kind : text_kind;
}

}  // namespace tutti::train
