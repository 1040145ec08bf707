// Begins, completes or abandons the save of a job. A detached actor: its file I/O may take as long as disks do, and the
// job supervisor's mailbox must not wait for it. The next incarnation carries the order out that the one before had in hand,
// in the same folder: what is there of it is written over.
#pragma once

#include <caf/actor.hpp>
#include <caf/allowed_unsafe_message_type.hpp>

#include <atomic>
#include <memory>
#include <string>

#include "actors/supervised.hpp"
#include "engine/model/job_config.hpp"
#include "engine/state/state_codec.hpp"

namespace kintsugi::actors {

// --- job supervisor -> coordinator ----------------------------------------------------------------------------------
struct BeginSave {  // one that is begun goes on: a job supervisor that was restarted saves anew, to the same folder
  std::string directory;
};
struct CommitSave {
  StateManifest manifest;
  JobConfig job;
};
struct EndSave {};  // what is not committed is abandoned; the coordinator ends

// --- coordinator -> job supervisor ----------------------------------------------------------------------------------
struct SaveBegun {
  Result<std::string> staging;
};
struct SaveDone {
  Result<Digest> outcome;  // the state digest
};

// `cancelled`: set by the owner to cut a commit short.
caf::actor spawn_checkpoint_coordinator(Place place, std::shared_ptr<std::atomic<bool>> cancelled);

}  // namespace kintsugi::actors

CAF_ALLOW_UNSAFE_MESSAGE_TYPE(kintsugi::actors::BeginSave)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(kintsugi::actors::CommitSave)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(kintsugi::actors::EndSave)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(kintsugi::actors::SaveBegun)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(kintsugi::actors::SaveDone)
