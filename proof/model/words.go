package model

import "fmt"

// words says what a step did.
func words(st step, before, after *state) string {
	who := fmt.Sprintf("worker %d", st.i)
	p := unpack(st.n)
	w := worker{}
	if st.i > 0 {
		w = before.w[st.i-1]
	}
	switch st.act {
	case aClaim:
		return fmt.Sprintf("a dispatcher claims dispatch %d", st.n)
	case aStart:
		return fmt.Sprintf("the platform starts %s for dispatch %d", who, st.n)
	case aLook:
		return fmt.Sprintf("%s looks: the lease is %s, and it may capture attempt %d", who, before.st, after.w[st.i-1].a)
	case aGiveUp:
		return fmt.Sprintf("%s looks: the lease is %s, and it leaves", who, before.st)
	case aMistake:
		return fmt.Sprintf("%s looks: its dispatch %d holds, so it takes itself for the holder", who, w.d)
	case aCapture:
		return fmt.Sprintf("%s captures attempt %d, starting from %s", who, after.att, unpack(after.w[st.i-1].from))
	case aCaptureLost:
		return fmt.Sprintf("%s captures attempt %d; the answer is lost", who, after.att)
	case aCaptureRefused:
		return fmt.Sprintf("%s is refused when it captures (412)", who)
	case aCaptureRefusedLost:
		return fmt.Sprintf("%s is refused when it captures; the answer is lost", who)
	case aCaptureRead, aAdvanceRead:
		if before.own == st.i {
			return fmt.Sprintf("%s reads the lease again: it is its own", who)
		}
		return fmt.Sprintf("%s reads the lease again: it is %s by worker %d at attempt %d", who, before.st, before.own, before.att)
	case aOpen:
		return fmt.Sprintf("%s reserves the prefix of attempt %d", who, st.n)
	case aBegin:
		return fmt.Sprintf("%s begins attempt %d without reserving its prefix", who, st.n)
	case aOpenRefused:
		return fmt.Sprintf("%s finds the prefix of attempt %d reserved by worker %d, and stops", who, st.n, before.opened[st.n])
	case aHalf:
		return fmt.Sprintf("%s uploads half of %s", who, p)
	case aComplete:
		return fmt.Sprintf("%s completes %s", who, p)
	}
	return moreWords(st, before, who, p)
}

func moreWords(st step, before *state, who string, p Point) string {
	switch st.act {
	case aRenew:
		return fmt.Sprintf("%s renews attempt %d", who, st.n)
	case aRenewRefused:
		return fmt.Sprintf("%s is refused when it renews (412), and stops", who)
	case aAsk:
		return fmt.Sprintf("%s asks whether it still holds: yes", who)
	case aAdvance:
		return fmt.Sprintf("%s moves the pointer to %s", who, p)
	case aAdvanceLost:
		return fmt.Sprintf("%s moves the pointer to %s; the answer is lost", who, p)
	case aAdvanceRefused:
		return fmt.Sprintf("%s is refused when it moves the pointer to %s (412)", who, p)
	case aAdvanceRefusedLost:
		return fmt.Sprintf("%s is refused when it moves the pointer to %s; the answer is lost", who, p)
	case aResult:
		return fmt.Sprintf("%s uploads %s", who, p)
	case aFinish:
		return fmt.Sprintf("%s finishes with %s", who, p)
	case aFinishRefused:
		return fmt.Sprintf("%s is refused when it finishes (412), and stops", who)
	case aYield:
		return fmt.Sprintf("%s yields attempt %d", who, st.n)
	case aCrash:
		return fmt.Sprintf("%s crashes", who)
	case aRevoke:
		return fmt.Sprintf("a dispatcher takes attempt %d of worker %d for silent and revokes it", st.n, before.own)
	case aStop:
		return fmt.Sprintf("the operator stops the work: no dispatch below %d may capture", st.n)
	case aDelete:
		return "somebody deletes the witness"
	case aRepair:
		return fmt.Sprintf("a person repairs the witness, with the pointer at %s", p)
	case aTwin, aTwinLate:
		return fmt.Sprintf("the request that created the witness for %s arrives a second time", who)
	}
	return "an unknown step"
}
