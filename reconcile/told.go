package reconcile

import (
	"slices"

	"github.com/headway-run/headway/runners"
	"github.com/headway-run/headway/runners/record"
	"github.com/headway-run/headway/runners/witness"
)

// notToldByWorkers are classes of which no worker that held a lease knows anything: a table of values. Most of them cost
// nothing and let the next launch follow at once, so a machine that says one of them falsely would be paid for again and again.
var notToldByWorkers = []string{string(runners.NoSlots), string(runners.QuotaExhausted), string(runners.SpawnedElsewhere), string(runners.Unreachable),
	string(runners.Rejected), string(runners.ProtocolError), "nothing_to_do", classMoved, classUncalled, classNoCapture, classUnstarted}

// told is the class of an end as its worker wrote it down, as far as it is believed: that it was stopped on purpose where the
// lease's floor says so, that it finished where the lease does. What can't be true is a defect of the worker, or a lie.
func told(e *record.End, rec *witness.Record, dispatch int64) string {
	class := shown(e.Class, 60)
	switch {
	case slices.Contains(notToldByWorkers, class),
		class == "revoked" && dispatch >= rec.Floor,
		class == "finished" && (rec.State != witness.Finished || rec.Attempt != e.Attempt):
		return "internal"
	}
	return class
}
