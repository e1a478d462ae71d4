package reason

// The reasons of the condition Ready of pools and advertisements.
const (
	InUse           Word = "InUse"
	InvalidRange    Word = "InvalidRange"
	InvalidSelector Word = "InvalidSelector"
	Overlaps        Word = "Overlaps"
	PoolNotFound    Word = "PoolNotFound"
)

// The reasons of the condition berth.dev/Allocated of Services.
const (
	Allocated       Word = "Allocated"
	PartlyAllocated Word = "PartlyAllocated"
	OutOfPool       Word = "OutOfPool"
	RequestUnmet    Word = "RequestUnmet"
	InvalidRequest  Word = "InvalidRequest"
	NoPool          Word = "NoPool"
	PoolFull        Word = "PoolFull"
	AddressInUse    Word = "AddressInUse"
	NotInPool       Word = "NotInPool"
	PoolNotOpen     Word = "PoolNotOpen"
	AddressSkipped  Word = "AddressSkipped"
	ForeignAddress  Word = "ForeignAddress"
	MovedDuplicate  Word = "MovedDuplicate"

	SharingRefused    Word = "SharingRefused"
	SharingBroken     Word = "SharingBroken"
	SharingNotAllowed Word = "SharingNotAllowed"
	QuotaExceeded     Word = "QuotaExceeded"
	Reserved          Word = "Reserved"
	CoolingDown       Word = "CoolingDown"

	RivalWriter       Word = "RivalWriter"
	UnknownAnnotation Word = "UnknownAnnotation"
)

// The reasons of the condition berth.dev/Announced of Services, and those for which a node is no candidate.
const (
	Announced          Word = "Announced"
	NoAddress          Word = "NoAddress"
	NoAdvertisement    Word = "NoAdvertisement"
	NoSpeakers         Word = "NoSpeakers"
	NoEndpoints        Word = "NoEndpoints"
	NoLocalEndpoints   Word = "NoLocalEndpoints"
	NoCandidates       Word = "NoCandidates"
	SharersDisagree    Word = "SharersDisagree"
	NodeGone           Word = "NodeGone"
	NodeNotSelected    Word = "NodeNotSelected"
	NetworkUnavailable Word = "NetworkUnavailable"
	NodeLeaving        Word = "NodeLeaving"
	SpeakerDown        Word = "SpeakerDown"
	ProxyNotReady      Word = "ProxyNotReady"
	NoLink             Word = "NoLink"
	OffSubnet          Word = "OffSubnet"
	LowerTier          Word = "LowerTier"
	LowerHash          Word = "LowerHash"
	AddressOfCluster   Word = "AddressOfCluster"
	NotConfirmed       Word = "NotConfirmed"
)

// The reasons of the condition Ready of speakers.
const (
	Announcing     Word = "Announcing"
	NoNetRaw       Word = "NoNetRaw"
	MembersMissing Word = "MembersMissing"
)

// Catalogue is every word, with its severity and meaning, in the order of the reference.
func Catalogue() []Entry {
	return []Entry{
		{InUse, Normal, "The object is used as written."},
		{InvalidRange, Warning, "An entry of the pool cannot be used, for example an IPv6 range that ends before it starts. The pool is not " +
			"used until it is mended; addresses already given stay."},
		{InvalidSelector, Warning, "A label selector cannot be read. The object is not used until it is mended."},
		{Overlaps, Warning, "Part of the pool lies in an older pool, which keeps it. The rest of the pool is used."},
		{PoolNotFound, Warning, "The advertisement names a pool that does not exist. The other pools it names are announced."},

		{Allocated, Normal, "The Service holds every address it should."},
		{PartlyAllocated, Warning, "The Service prefers two families and holds an address of one; the other is added when one can be had."},
		{OutOfPool, Warning, "No pool contains the address any more. The Service keeps it, and it stays announced."},
		{RequestUnmet, Warning, "The Service asks for something it cannot have. It keeps what it holds."},
		{InvalidRequest, Warning, "The request on the Service cannot be read."},
		{NoPool, Warning, "No pool is open to the Service, or none has addresses of the family."},
		{PoolFull, Warning, "Every pool open to the Service is full. It gets the next address that is freed."},
		{AddressInUse, Warning, "Another Service holds the requested address. The Service gets it when it is freed."},
		{NotInPool, Warning, "The requested address is in no pool."},
		{PoolNotOpen, Warning, "The pool is not open to this Service: see serviceAllocation in the pool."},
		{AddressSkipped, Warning, "The requested address belongs to a node, a router or the cluster itself, or is left out by the pool."},
		{ForeignAddress, Warning, "The status holds an address that Berth did not give and that no pool may give. It is left as it is, and not announced."},
		{MovedDuplicate, Warning, "Two Services held one address. The older keeps it; this one was given another."},
		{SharingRefused, Warning, "Another Service of the same sharing key holds the requested address, and the two cannot have it together: they have a " +
			"port in common, other traffic policies or, under Local, other pods, or the pool does not let them share."},
		{SharingBroken, Warning, "The Service was changed and can no longer share its address with the others there. It was given another one."},
		{SharingNotAllowed, Warning, "The Service shares its address with another, which the pool's sharing would not allow now. It keeps it."},
		{QuotaExceeded, Warning, "The Service's namespace holds as many addresses of the pool as its quota allows."},
		{Reserved, Warning, "The requested address is reserved for another Service by an AddressReservation."},
		{CoolingDown, Warning, "The requested address was freed a short while ago, and the pool's releaseDelay keeps it from others until then."},
		{RivalWriter, Warning, "Another program writes this Service's load balancer status. Berth has stopped writing it."},
		{UnknownAnnotation, Warning, "The Service has an annotation under berth.dev/ that means nothing to Berth: most likely a spelling mistake."},

		{Announced, Normal, "One node answers for each address."},
		{NoAddress, Waiting, "The Service has no address yet: see the condition berth.dev/Allocated."},
		{NoAdvertisement, Warning, "No advertisement selects the Service's pool and the Service."},
		{NoSpeakers, Warning, "No speaker is alive."},
		{NoEndpoints, Waiting, "The Service has no endpoint that takes traffic."},
		{NoLocalEndpoints, Waiting, "The traffic policy is Local and no node that could announce has an endpoint that takes traffic."},
		{NoCandidates, Warning, "Every node is excluded; the message names the rules."},
		{SharersDisagree, Warning, "Services that share an address can be announced by no common node."},
		{NodeGone, Waiting, "The node has a speaker but no Node object."},
		{NodeNotSelected, Normal, "No advertisement for the Service selects the node."},
		{NetworkUnavailable, Waiting, "The node's network is not set up yet."},
		{NodeLeaving, Normal, "The node is leaving: it is excluded from load balancers, shut down or being removed."},
		{SpeakerDown, Warning, "The node's speaker is not alive."},
		{ProxyNotReady, Waiting, "kube-proxy has not served on the node since it booted."},
		{NoLink, Warning, "The node has no link that is up and allowed to carry the address."},
		{OffSubnet, Warning, "The node that answers has no link in the address's subnet that it may use: hosts there are not reached, only " +
			"a route leads to the address."},
		{LowerTier, Normal, "A better placed node answers."},
		{LowerHash, Normal, "Another node's hash for the address is higher: that is how addresses are spread."},
		{AddressOfCluster, Warning, "The address belongs to a node, a router or the cluster itself and is never announced."},
		{NotConfirmed, Warning, "The speaker that should answer for the address has not reported that it does."},

		{Announcing, Normal, "The speaker announces what it owns."},
		{NoNetRaw, Warning, "The speaker may not open raw sockets and cannot answer for addresses: it needs the capability NET_RAW."},
		{MembersMissing, Warning, "The speaker sees fewer speakers alive than there are."},
	}
}
