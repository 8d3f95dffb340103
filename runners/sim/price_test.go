package sim_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"

	"github.com/google/go-cmp/cmp"

	"github.com/headway-run/headway/runners"
	"github.com/headway-run/headway/runners/record"
	"github.com/headway-run/headway/runners/sim"
)

// A launch says what it costs, before and after, and is refused where no offer is cheap enough.
func TestALaunchSaysItsPrice(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, d := begin(t, sim.Config{Slots: 5, Price: 0.4, Unit: "credits", UntilReleased: true}, "")
		defer r.Close()
		want := record.Price{PerHour: 0.4, Unit: "credits"}
		if p, known, err := runners.AskPrice(t.Context(), r, "sim"); !known || err != nil || p != want {
			t.Errorf("before: %+v, %v, %v", p, known, err)
		}
		order := launch(1)
		order.MaxPrice = &record.Price{PerHour: 0.39}
		if out := d.Launch(t.Context(), r, []runners.Launch{order})[0]; runners.ClassOf(out.Err) != runners.NoSlots {
			t.Errorf("above the limit: %+v", out)
		}
		order = launch(2)
		order.MaxPrice = &record.Price{PerHour: 0.1, Unit: "USD"} // another unit is not held against it
		out := d.Launch(t.Context(), r, []runners.Launch{order})[0]
		if out.Err != nil || !out.Receipt.Outlives {
			t.Fatalf("%+v", out)
		}
		if diff := cmp.Diff(&want, out.Receipt.Price); diff != "" {
			t.Errorf("after: %s", diff)
		}
	})
}

// odd is a platform whose prices make no sense.
type odd struct {
	*sim.Runner
	price record.Price
}

func (o odd) Launch(ctx context.Context, jobs []runners.Launch) ([]runners.Receipt, error) {
	out, err := o.Runner.Launch(ctx, jobs)
	for i := range out {
		out[i].Price = &o.price
	}
	return out, err
}

func (o odd) Price(ctx context.Context) (record.Price, error) { return o.price, nil }

// A price that makes no sense is no price: the launch did happen, and its handle is kept. Asked alone, it is an answer out
// of the contract.
func TestAPriceThatMakesNoSenseIsLeftOut(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, d := begin(t, sim.Config{Slots: 5}, "")
		defer r.Close()
		bad := odd{r, record.Price{PerHour: -3, Unit: "USD"}}
		out := d.Launch(t.Context(), bad, []runners.Launch{launch(1)})[0]
		if out.Err != nil || len(out.Receipt.Handle) == 0 || out.Receipt.Price != nil {
			t.Errorf("%+v", out.Receipt)
		}
		_, known, err := runners.AskPrice(t.Context(), bad, "sim")
		if f, ok := errors.AsType[*runners.Failure](err); known || !ok || f.Class != runners.ProtocolError {
			t.Errorf("%v, %v", known, err)
		}
	})
}
