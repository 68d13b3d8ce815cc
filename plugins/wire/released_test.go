package wire_test

import (
	"os"
	"slices"
	"testing"

	"go.uber.org/goleak"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protodesc"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/descriptorpb"

	authhookv1 "github.com/rouse-run/rouse/plugins/proto/rouse/authhook/v1"
	transportv1 "github.com/rouse-run/rouse/plugins/proto/rouse/transport/v1"
	"github.com/rouse-run/rouse/plugins/wire"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// broken lists what a plugin built with the contract before could not speak
// any more with a gateway built with the one after.
func broken(before, after protoreflect.FileDescriptor) (why []string) {
	same := func(name protoreflect.FullName, what string, a, b any) {
		if a != b {
			why = append(why, string(name)+": its "+what+" is another one")
		}
	}
	for i := range before.Messages().Len() {
		m := before.Messages().Get(i)
		now := after.Messages().ByName(m.Name())
		if now == nil {
			why = append(why, string(m.FullName())+" is gone")
			continue
		}
		for j := range m.Fields().Len() {
			f := m.Fields().Get(j)
			g := now.Fields().ByNumber(f.Number())
			if g == nil {
				why = append(why, string(f.FullName())+" is gone")
				continue
			}
			same(f.FullName(), "name", f.Name(), g.Name())
			same(f.FullName(), "kind", f.Kind(), g.Kind())
			same(f.FullName(), "cardinality", f.Cardinality(), g.Cardinality())
			if f.Message() != nil && g.Message() != nil {
				same(f.FullName(), "message", f.Message().FullName(), g.Message().FullName())
			}
			if f.Enum() != nil && g.Enum() != nil {
				same(f.FullName(), "enum", f.Enum().FullName(), g.Enum().FullName())
			}
		}
	}
	for i := range before.Enums().Len() {
		e := before.Enums().Get(i)
		now := after.Enums().ByName(e.Name())
		if now == nil {
			why = append(why, string(e.FullName())+" is gone")
			continue
		}
		for j := range e.Values().Len() {
			v := e.Values().Get(j)
			if w := now.Values().ByNumber(v.Number()); w == nil || w.Name() != v.Name() {
				why = append(why, string(v.FullName())+" is gone or another one")
			}
		}
	}
	for i := range before.Services().Len() {
		s := before.Services().Get(i)
		now := after.Services().ByName(s.Name())
		if now == nil {
			why = append(why, string(s.FullName())+" is gone")
			continue
		}
		for j := range s.Methods().Len() {
			m := s.Methods().Get(j)
			n := now.Methods().ByName(m.Name())
			if n == nil {
				why = append(why, string(m.FullName())+" is gone")
				continue
			}
			same(m.FullName(), "question", m.Input().FullName(), n.Input().FullName())
			same(m.FullName(), "answer", m.Output().FullName(), n.Output().FullName())
			same(m.FullName(), "streaming", [2]bool{m.IsStreamingClient(), m.IsStreamingServer()}, [2]bool{n.IsStreamingClient(), n.IsStreamingServer()})
		}
	}
	return why
}

func released(t *testing.T) map[string]*descriptorpb.FileDescriptorProto {
	t.Helper()
	raw, err := os.ReadFile("../proto/released.binpb")
	if err != nil {
		t.Fatal(err)
	}
	var set descriptorpb.FileDescriptorSet
	if err := proto.Unmarshal(raw, &set); err != nil {
		t.Fatal(err)
	}
	files := map[string]*descriptorpb.FileDescriptorProto{}
	for _, f := range set.File {
		files[f.GetName()] = f
	}
	return files
}

// Plugins in the field are not built again with a gateway.
func TestReleasedContractsStillHold(t *testing.T) {
	t.Parallel()
	files := released(t)
	for _, now := range []protoreflect.FileDescriptor{transportv1.File_rouse_transport_v1_transport_proto, authhookv1.File_rouse_authhook_v1_authhook_proto} {
		was := files[now.Path()]
		if was == nil {
			t.Fatalf("%s is not among the released contracts", now.Path())
		}
		before, err := protodesc.NewFile(was, nil)
		if err != nil {
			t.Fatal(err)
		}
		for _, why := range broken(before, now) {
			t.Error(why)
		}
	}
}

// The check above bites.
func TestABrokenContractIsSeen(t *testing.T) {
	t.Parallel()
	was := released(t)["rouse/transport/v1/transport.proto"]
	before, err := protodesc.NewFile(was, nil)
	if err != nil {
		t.Fatal(err)
	}
	message := func(f *descriptorpb.FileDescriptorProto, name string) *descriptorpb.DescriptorProto {
		return f.MessageType[slices.IndexFunc(f.MessageType, func(m *descriptorpb.DescriptorProto) bool { return m.GetName() == name })]
	}
	for name, spoil := range map[string]func(*descriptorpb.FileDescriptorProto){
		"a field's number": func(f *descriptorpb.FileDescriptorProto) { message(f, "Result").Field[0].Number = proto.Int32(17) },
		"a field's name":   func(f *descriptorpb.FileDescriptorProto) { message(f, "Result").Field[0].Name = proto.String("id") },
		"a field's type": func(f *descriptorpb.FileDescriptorProto) {
			message(f, "Delivery").Field[2].Type = descriptorpb.FieldDescriptorProto_TYPE_INT64.Enum()
		},
		"an enum's value": func(f *descriptorpb.FileDescriptorProto) { f.EnumType[0].Value = f.EnumType[0].Value[:2] },
		"a call":          func(f *descriptorpb.FileDescriptorProto) { f.Service[0].Method = f.Service[0].Method[1:] },
		"what a call answers": func(f *descriptorpb.FileDescriptorProto) {
			f.Service[0].Method[0].OutputType = proto.String(".rouse.transport.v1.HealthResponse")
		},
	} {
		spoiled := proto.Clone(was).(*descriptorpb.FileDescriptorProto)
		spoil(spoiled)
		after, err := protodesc.NewFile(spoiled, nil)
		if err != nil {
			t.Fatal(err)
		}
		if len(broken(before, after)) == 0 {
			t.Errorf("%s may be changed unseen", name)
		}
	}
	if why := broken(before, before); len(why) != 0 {
		t.Errorf("what has not changed is said to be broken: %v", why)
	}
}

func TestAHostOffersEveryKind(t *testing.T) {
	t.Parallel()
	for v, set := range wire.Sets(nil, nil) {
		if len(set) != 2 {
			t.Errorf("version %d has %d kinds", v, len(set))
		}
	}
	if got := wire.Sets(nil, authhookv1.UnimplementedAuthHookServiceServer{})[wire.V1]; len(got) != 1 || got[wire.AuthHook] == nil {
		t.Errorf("an auth hook serves %v", got)
	}
}
