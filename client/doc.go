// Package client is the public Go client of Forebay.
//
// A Client is made by New and speaks to one address. It has a method for each call of the REST contract. What a program needs for as long as it
// runs is built upon it:
//
//	Producer   publishes to a topic: gathers records into requests, keeps several under way, repeats what failed, keeps the order per key
//	Worker     works a subscription off: each record to one worker at a time, acked one by one, repeated when it fails, a dead letter in the end
//	Consumer   is a member of a group: owns partitions, handles them in order per key, commits how far it has come
//	Reader     reads a topic from any place, alone: replays, exports, views that are built up anew
//
// Packages beside it make effects in PostgreSQL happen once: outbox publishes what a transaction has committed, inbox recognises what was handled
// before. Runnable programs are in the folder examples: orders, queue, group, replay, outbox.
//
// # Which one
//
// Records that are jobs, independent of each other, and of unequal length: a subscription and Workers. They scale beyond the number of partitions, one
// slow or bad record holds up no other, and failures are counted per record. Records that are a history, whose order matters: a group and Consumers. There
// may be as many members with work to do as there are partitions, and a record that cannot be handled holds up what is behind it, until
// WithConsumerFailure decides otherwise. A subscription may keep the order per key, too ("ordering": "key"), for jobs that are both. To look at
// records without leaving a trace, or to keep positions beside the results, a Reader. All of them may read one topic at the same time.
//
// # What is promised
//
// A publish that succeeded is durable: stored in the object store and committed at a quorum. A request is stored whole or not at all. Records of one
// key are stored in the order in which one Producer sent them, once each, whatever is repeated on the way.
//
// Delivery, by Workers and Consumers, is at least once. A record is handled again after a crash, after a lease or a session that lapsed because the
// process stood still or the network did, and after an ack or a commit whose outcome nobody could learn. There is no setting that changes that:
// who handles a record and then says so can always die in between. What can be had is an effect that counts once: by an inbox in the
// database that the effect is in, or by effects that may be repeated. Nothing is handed out that was acked, or is below what was committed, except after a
// seek, and after the loss of Redis without its data: acks of the last 100 ms may be forgotten then.
//
// Nothing is skipped in silence. What retention has deleted before it was read is an error that names the range, and somebody decides: ErrRetentionGap
// ends a Worker, *GapError a Consumer, *OutOfRangeError the loop of a Reader.
//
// # Errors
//
// The methods of Client fail with an *Error. Classify says what a caller may conclude from it: Retriable (nothing happened, the same request may
// succeed later), Definite (nothing happened, and the same request will fail again) or Indefinite (it may have happened). errors.Is compares codes:
// errors.Is(err, client.ErrUnknownTopic).
//
// # Retries
//
// The client retries by itself, with bounded exponential backoff and a bounded Retry-After, what is Retriable. What is Indefinite it
// sends again only where a repetition has no second effect: reads, settings, and a publish that carries a ProducerSequence, which lets
// the server recognise the repetition. A publish without one whose outcome is unknown is returned to the caller, who alone knows
// whether twice is better than never. A Producer has one unless it is told otherwise.
//
// A lease carries a request ID, by which a repetition gets the same leases; acks, nacks and extensions are repeatable by nature, but a
// nack that had its effect answers LEASE_LOST when it is repeated. A redrive, a discard and a seek to the latest record are not repeated
// when their outcome is unknown: the second one would act on what came since.
//
// Producer, Worker, Consumer and a Reader that follows outlive the retries of single calls: a node that is killed, a lease store that is away for
// minutes, a token source that is away. They tell of it (WithWorkerNotify and its like) and go on. What the server refuses for good ends them; a Producer only fails the record
// that was refused, unless it was fenced (ErrFenced).
//
// # Goroutines
//
// A Client, a Producer, a Worker and a Consumer are safe for concurrent use; a Reader is for one loop at a time. Whatever starts goroutines has ended
// them when its Run, Close or loop returns. Functions given as options are called by several goroutines, unless their comment says otherwise. Everything
// that can queue has a bound, and waits or slows down at it.
//
// To end well, let the context of Run end, as by signal.NotifyContext: what was begun is finished within a time of grace, settled or committed, and the
// rest is left to others at once. A Producer ends with Close, which waits for what it has.
//
// # Memory
//
// Keys and values of records read share one buffer per answer: keep a copy of what should outlive the rest.
package client
