#include "tutti/job/store/store_meeting.h"

#include <algorithm>
#include <utility>

#include "tutti/core/error.h"
#include "tutti/job/deadline.h"
#include "tutti/job/printable.h"
#include "tutti/job/store/store_rules.h"

namespace tutti::comm {
namespace {

using std::chrono::milliseconds;
using std::chrono::steady_clock;

}  // namespace

void sound_alarm(Store& store, const std::string& alarm, const std::string& reason) {
  std::string first = reason;
  try {
    first = store.compare_set(alarm, "", reason);
  } catch (const Error&) {
    // The store is gone: everybody says what it sees itself.
  }
  throw MeetingEnded(printable_lines(first));
}

void heed_alarm(Store& store, const std::string& alarm) {
  if (store.check({alarm})) throw MeetingEnded(printable_lines(store.get(alarm)));
}

Met meet_in_store(const StoreMeeting& meeting, const std::string& value,
                  const std::function<void(const std::vector<int>&)>& late) {
  Store& store = meeting.store;
  const std::string came = meeting.key + "/came", complete = meeting.key + "/complete";
  Store::Keys keys;
  for (int r = 0; r < meeting.size; ++r) keys.push_back(fmt::format("{}/rank/{}", meeting.key, r));
  store.set(keys[static_cast<size_t>(meeting.rank)], value);
  // One small key to wait for, because every rank asks for it again and again.
  if (store.add(came, 1) == meeting.size) store.set(complete, "1");
  while (true) {
    const auto left = std::chrono::ceil<milliseconds>(meeting.deadline - steady_clock::now());
    try {
      store.wait({complete}, std::clamp(left, milliseconds(0), kLookAround));
      break;
    } catch (const StoreTimeout&) {
      heed_alarm(store, meeting.alarm);
      try {
        if (meeting.look_around) meeting.look_around();
      } catch (const PeerError& error) {
        sound_alarm(store, meeting.alarm, error.what());
      }
      if (steady_clock::now() < meeting.deadline) continue;
    }
    const Store::Keys there = store.list_keys(meeting.key + "/rank/");
    std::vector<int> missing;
    for (int r = 0; r < meeting.size; ++r) {
      if (std::find(there.begin(), there.end(), keys[static_cast<size_t>(r)]) == there.end()) missing.push_back(r);
    }
    if (!missing.empty()) late(missing);  // else they come at this very moment
  }
  Met met;
  for (size_t begin = 0; begin < keys.size(); begin += kMaxStoreKeys) {
    const auto first = keys.begin() + static_cast<std::ptrdiff_t>(begin),
               last = keys.begin() + static_cast<std::ptrdiff_t>(std::min(keys.size(), begin + kMaxStoreKeys));
    for (std::string& value : store.multi_get({first, last})) met.values.push_back(std::move(value));
  }
  // Whoever counts last knows that all have read.
  met.is_last = store.add(came, 1) == 2 * int64_t{meeting.size};
  if (met.is_last) {
    keys.insert(keys.end(), {came, complete});
    for (const std::string& key : keys) store.delete_key(key);
  }
  return met;
}

}  // namespace tutti::comm
