// Package file is the object store in a folder: durable, shared by any number of processes of one machine.
//
// # Layout
//
// The object "l0/7f/01J.seg" is the file <root>/l0.d/7f.d/01J.seg. Folders carry ".d" so that a key may be an object and a prefix of
// others at once; path.go has the exact mapping. <root>/.tmp holds what is being written and the locks. An object's writer's ID is in its
// extended attribute user.forebay.id; on a file system without extended attributes, PutIfAbsent recognises its own earlier attempt
// by the content instead, and Info.ID is empty.
//
// # Durability
//
// A put writes a file in .tmp, syncs it, links it to its final name (link(2) fails if the name is taken: that is the put-if-absent)
// and syncs the folder. New folders are synced in their parents before anything is linked in them. Concurrent puts into one folder
// share one sync of it. Nothing is acknowledged before it would survive a power cut. An object is visible to readers from the link on,
// a moment before it is acknowledged. Deletes are not synced: after a power cut a deleted object may be back.
//
// A put that fails before the link had no effect. From the link on, failures are *objectstore.OutcomeUnknownError, and a retry with
// the same ID settles the matter. After the sync of a folder fails with an I/O error, that folder takes no more writes from this
// process, because a later sync can succeed without having written what the failed one dropped.
//
// Folders are never removed, so that no put can race with the removal of the folder it links into: use layouts with a bounded
// number of folders. Nothing else should write or remove under the root.
//
// # Sharing
//
// Each Store writes in a folder of its own under .tmp and holds a lock on it while it lives. Open removes what stores that are gone
// left behind.
package file
