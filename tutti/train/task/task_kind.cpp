#include "tutti/train/task/task_kind.h"

namespace tutti::train {

const TaskKind& task_kind(const Config&) { return text_kind; }

}  // namespace tutti::train
