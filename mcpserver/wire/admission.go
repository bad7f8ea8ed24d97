package wire

import (
	"sync"
	"time"

	"github.com/skillsd/skillsd/mcpserver/admit"
)

// admission is what one request has acquired of the limits of its transport. release returns all of it. Until
// then a request is in these states, with these claims:
//
//	decoding | bytes for reading and decoding its message
//	running  | the same, and a slot
//	decoded  | bytes of its message in place of those for decoding, and the slot
//	yielded  | bytes of its message
//
// Safe for concurrent use: the work of a task may outlive its request.
type admission struct {
	principal string
	size      int           // of the message in bytes
	messages  *admit.Quota  // for the messages of decoded requests; nil without a limit
	memory    *admit.Ledger // of files, pictures and the answer; nil without a limit
	listen    *admit.Claim  // of a subscription
	spread    *admit.Claim  // of a message being sent to other servers
	calls     *callTable    // the table with call; nil without one
	call      *call

	mu       sync.Mutex
	decoding *admit.Claim
	slot     *admit.Claim // nil for a request that needs none
	message  *admit.Claim
	settled  bool // decoded was called
	fits     bool // its result
}

// decoded replaces the memory for decoding by memory for the message. It returns false, and changes nothing,
// if there is no room for the message. Further calls return the same.
func (a *admission) decoded() bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.settled {
		return a.fits
	}
	a.settled = true
	if a.messages != nil {
		a.message = a.messages.Take(a.principal, a.size)
	}
	a.fits = a.messages == nil || a.message != nil
	if a.fits {
		a.decoding.Release()
	}
	return a.fits
}

// yield releases the slot. It returns false, and changes nothing, if there is no room for the message.
func (a *admission) yield() bool {
	if !a.decoded() {
		return false
	}
	a.slot.Release()
	return true
}

// join registers a call in a table until release; see callTable.add.
func (a *admission) join(calls *callTable, c *call) (bool, *Error) {
	ok, failure := calls.add(c)
	if ok {
		a.calls, a.call = calls, c
	}
	return ok, failure
}

// release returns everything that the request has acquired. Only the first call has an effect, and decoded
// acquires nothing any more.
func (a *admission) release() {
	a.slot.Release()
	if a.calls != nil {
		a.calls.leave(a.call)
		a.calls = nil
	}
	a.memory.Close()
	a.listen.Release()
	a.spread.Release()
	a.mu.Lock()
	defer a.mu.Unlock()
	a.fits = a.fits || !a.settled
	a.settled = true
	a.message.Release()
	a.decoding.Release()
}

const (
	// holdingPatience is how long a request waits for the memory of other requests with large answers.
	holdingPatience = 10 * time.Second

	// The memory that the process needs besides the memory quota, and the minimum of the quota.
	otherMemory = 128 << 20
	leastMemory = 64 << 20

	// fileCost is the memory in bytes for each byte of a file in an answer: for the file, its base64 or JSON,
	// and the message.
	fileCost = 5
)

// newDecoding returns the quota for bytes of messages being read and decoded: in total four times the longest
// message, per principal the longest message and a quarter. Decoding takes several times the memory of the
// text, and a processor.
func newDecoding(longest int) *admit.Quota { return admit.NewQuota(4*longest, longest+longest/4) }

// newMemory returns the quota for the memory of files, decoded pictures and answers until they are written. A
// principal may use the memory for a file of the longest kind, 64 MiB, and some short ones, so that two
// principals with long files leave room for others. In a process limited to most bytes (0 means unlimited)
// the quota is smaller accordingly.
func newMemory(most int64) *admit.Quota {
	all := int64(192 << 20 * fileCost)
	if most > 0 {
		all = min(all, max(most-otherMemory, leastMemory))
	}
	return admit.NewQuota(int(all), int(all/12*5))
}

// newQuota returns a quota of most units; one principal may hold the part 1/share.
func newQuota(most, share int) *admit.Quota { return admit.NewQuota(most, max(most/share, 1)) }
