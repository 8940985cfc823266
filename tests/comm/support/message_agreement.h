// Messages whose two ends do not fit together.
#pragma once

#include "tutti/comm/process_group.h"

namespace tutti::comm {

// On every rank of a group of three; throws when an end of a message that does not fit is not told, or not soon.
void check_message_agreement(ProcessGroup& group);

}  // namespace tutti::comm
