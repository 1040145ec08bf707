// Writing saved state. One coordinator begins and finishes; in between any number of processes write one file a shard.
// Everything is made under DIR.tmp and becomes DIR by one rename, so DIR is always a whole save, the older or the
// newer.
#pragma once

#include <string>

#include "base/file.hpp"
#include "base/result.hpp"
#include "engine/state/state_codec.hpp"

namespace kintsugi {

// Files under a save's folder.
std::string shard_file(const std::string& directory, ShardId shard);
std::string manifest_file(const std::string& directory);
std::string manifest_digest_file(const std::string& directory);

// Makes an empty DIR.tmp, in place of what an interrupted save left, and returns its path. Other files of the save (a
// model export) may be put there, too. Error{tell_user}: DIR or DIR.tmp exists and is no save of kintsugi's, or cannot
// be written.
// Refuses while somebody holds that folder.
Result<std::string> begin_save(const std::string& directory);

// Keeps other runs, on this machine, from beginning a save there while the descriptor lives. Error{tell_user}: one has.
Result<FileDescriptor> hold_save(const std::string& staging);

// Writes one shard's file under `staging` (from begin_save) whole or not at all. Any thread or process, one call a
// shard.
Result<SavedShard> write_shard(const std::string& staging, const StatePosition& position, Lineage lineage,
                               const Shard& shard, ConstShardState state);

// Checks that every listed shard lies in DIR.tmp as listed, writes the manifest last, and publishes: the older DIR,
// with all that is in it, is gone afterwards. Returns the state digest. On an error the older DIR is intact.
Result<Digest> finish_save(const std::string& directory, const StateManifest& manifest);

}  // namespace kintsugi
