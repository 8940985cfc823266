// The launcher itself, behind launch_local().
#pragma once

#include "tutti/job/launch/launcher.h"

namespace tutti::comm {

int launch_job(const LaunchOptions& options);

}  // namespace tutti::comm
